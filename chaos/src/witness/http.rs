//! Just enough of HTTP/1.1 to answer wrongly on purpose.
//!
//! Owns requests and the bytes of answers. A library would not let an answer be cut, doubled or withheld.

use std::io;

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

const HEAD_BYTES_MAX: usize = 65_536;
const BODY_BYTES_MAX: usize = 16_777_216;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// A header by its lower-case name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the next request; `None` if the connection ends between two.
pub(super) async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut lines = Vec::new();
    let mut length = 0_usize;
    loop {
        let mut line = String::new();
        length = length.saturating_add(stream.read_line(&mut line).await?);
        if line.is_empty() {
            return if lines.is_empty() { Ok(None) } else { Err(wrong()) };
        }
        if length > HEAD_BYTES_MAX {
            return Err(wrong());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    let method = lines.next().and_then(|first| first.split(' ').next().map(str::to_owned));
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let mut request = Request { method: method.ok_or_else(wrong)?, headers, body: Vec::new() };
    let length = request.header("content-length").map_or(Some(0), |text| text.parse().ok());
    let length = length.filter(|length| *length <= BODY_BYTES_MAX).ok_or_else(wrong)?;
    request.body.resize(length, 0);
    stream.read_exact(&mut request.body).await?;
    Ok(Some(request))
}

/// The bytes to send, and the fate of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reaction {
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It takes the next request.
    Keep,
    Close,
    Reset,
}

impl Reaction {
    /// A whole answer.
    pub(super) fn answer(status: u16, kind: &str, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            if status < 300 { "OK" } else { "No" },
            body.len()
        );
        Self { bytes: [head.as_bytes(), body].concat(), then: Then::Keep }
    }

    pub(super) fn empty(status: u16) -> Self {
        Self::answer(status, "application/json", b"")
    }

    pub(super) const fn nothing(then: Then) -> Self {
        Self { bytes: Vec::new(), then }
    }

    /// The beginning of this answer.
    pub(super) fn cut(mut self, bytes: usize, then: Then) -> Self {
        self.bytes.truncate(bytes);
        Self { then, ..self }
    }

    /// Sends it; returns whether the connection stays open.
    pub(super) async fn send(self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let stream = stream.get_mut();
        stream.write_all(&self.bytes).await?;
        stream.flush().await?;
        if self.then == Then::Reset {
            stream.set_zero_linger()?;
        }
        Ok(self.then == Then::Keep)
    }
}
