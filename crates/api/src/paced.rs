//! A connection whose peer has to read: it is closed when the peer does not take in time what is sent.
//!
//! Owns the deadline of a write that makes no progress. Invariant: while the peer does not read, nothing more is read from it, so that the
//! responses to pipelined requests do not pile up here.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A stream with a deadline for writes.
#[derive(Debug)]
pub(crate) struct Paced<I> {
    inner: I,
    /// How long a write may stay blocked.
    patience: Duration,
    /// Running while a write waits for the peer.
    blocked: Option<Pin<Box<Sleep>>>,
    /// The reader that was turned away meanwhile.
    reader: Option<Waker>,
}

impl<I> Paced<I> {
    pub(crate) fn new(inner: I, patience: Duration) -> Self {
        Self { inner, patience, blocked: None, reader: None }
    }

    /// Tracks whether a write made progress.
    fn wrote<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.blocked = None;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            return polled;
        }
        let patience = self.patience;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(blocked.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.blocked.is_some() {
            // The write that comes through wakes the reader.
            this.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut this.inner).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Paced<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_write(cx, buffer);
        this.wrote(cx, polled)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_flush(cx);
        this.wrote(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.wrote(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split},
        time::{Instant, timeout},
    };

    use super::Paced;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_fails_in_time_and_progress_gives_more() {
        let (near, mut far) = duplex(8);
        let mut near = Paced::new(near, PATIENCE);
        let began = Instant::now();
        let reading = tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(PATIENCE.mul_f32(0.8)).await;
                drop(far.read_u8().await);
            }
            // It stays open, and reads no more.
            tokio::time::sleep(PATIENCE * 100).await;
        });
        let failed = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), PATIENCE.mul_f32(2.4) + PATIENCE);
        reading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_from_a_peer_that_takes_nothing_until_it_does() {
        let (near, mut far) = duplex(8);
        let (mut reader, mut writer) = split(Paced::new(near, PATIENCE));
        far.write_all(b"ask").await.unwrap();
        let writing = tokio::spawn(async move { writer.write_all(&[0; 16]).await });
        tokio::task::yield_now().await;
        let mut asked = [0; 3];
        let early = timeout(Duration::from_secs(1), reader.read_exact(&mut asked)).await;
        assert!(early.is_err(), "it was read");
        let reading =
            tokio::spawn(async move { reader.read_exact(&mut asked).await.map(|_| asked) });
        let mut taken = [0; 16];
        far.read_exact(&mut taken).await.unwrap();
        writing.await.unwrap().unwrap();
        assert_eq!(&reading.await.unwrap().unwrap(), b"ask");
    }
}
