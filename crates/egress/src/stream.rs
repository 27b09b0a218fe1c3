//! The stream of one connection: plain TCP or TLS over it.
//!
//! It owns nothing but the delegation of reads and writes; anyone who holds an [`EgressStream`] holds a connection whose
//! address was checked.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// An open connection to a permitted destination.
#[derive(Debug)]
pub struct EgressStream {
    io: Io,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Both directions of a connection.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl EgressStream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { io: Io::Plain(stream) }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { io: Io::Tls(Box::new(stream)) }
    }

    fn duplex(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match &mut self.get_mut().io {
            Io::Plain(stream) => Pin::new(stream),
            Io::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }
}

impl AsyncRead for EgressStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.duplex().poll_read(cx, buffer)
    }
}

impl AsyncWrite for EgressStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.duplex().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.duplex().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.duplex().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.duplex().poll_write_vectored(cx, slices)
    }
}
