//! Scripted servers, resolvers and diallers.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::connect::Dial;
use crate::resolve::{Resolve, Resolving};
use crate::{Destination, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges, Trust};

/// A server on loopback that runs a script for each connection and counts them.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) async fn start<S, F>(script: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _peer)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(stream));
            }
        });
        Self { address, connections }
    }

    /// A server that reads one request for each given answer, in order, on every connection, and then closes it.
    pub(crate) async fn answering(answers: &'static [&'static str]) -> Self {
        Self::start(move |mut stream| async move {
            for answer in answers {
                if read_head(&mut stream).await.is_none()
                    || stream.write_all(answer.as_bytes()).await.is_err()
                {
                    return;
                }
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A client that may reach this server and nothing else.
    pub(crate) fn client(&self, limits: Limits) -> EgressClient {
        client(&[(self.url("/").as_str(), PrivateRanges::Allowed)], limits)
    }
}

/// A client that trusts these roots as well, in PEM form.
pub(crate) fn with_roots(
    policy: EgressPolicy,
    limits: Limits,
    roots_pem: &[u8],
) -> Result<EgressClient, EgressError> {
    let trust = Trust { roots_pem: roots_pem.to_vec(), identities: Vec::new() };
    EgressClient::with_trust(policy, limits, &trust)
}

/// Reads a request head; `None` if the connection ends first.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

pub(crate) fn policy(destinations: &[(&str, PrivateRanges)]) -> EgressPolicy {
    let read = |(url, private): &(&str, PrivateRanges)| {
        Destination::from_url(&Url::parse(url).unwrap(), *private).unwrap()
    };
    EgressPolicy::new(destinations.iter().map(read).collect())
}

pub(crate) fn client(destinations: &[(&str, PrivateRanges)], limits: Limits) -> EgressClient {
    with_roots(policy(destinations), limits, some_root().as_bytes()).unwrap()
}

/// A root that signs nothing, for clients that must not depend on the roots of the machine.
fn some_root() -> String {
    rcgen::generate_simple_self_signed(vec!["root.test".to_owned()]).unwrap().cert.pem()
}

pub(crate) fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

/// Answers with the given lists in turn, then with the last one for ever; counts the questions.
#[derive(Debug)]
pub(crate) struct Answers {
    lists: Mutex<VecDeque<Vec<IpAddr>>>,
    questions: AtomicUsize,
}

impl Answers {
    pub(crate) fn new(lists: &[&[&str]]) -> Arc<Self> {
        let read = |list: &&[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self {
            lists: Mutex::new(lists.iter().map(read).collect()),
            questions: AtomicUsize::new(0),
        })
    }

    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

impl Resolve for Answers {
    fn resolve(&self, _host: &str) -> Resolving {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let mut lists = self.lists.lock();
        let list = if lists.len() > 1 { lists.pop_front() } else { lists.front().cloned() };
        Box::pin(async move { Ok(list.unwrap_or_default()) })
    }
}

/// Never answers.
#[derive(Debug)]
pub(crate) struct Silence;

impl Resolve for Silence {
    fn resolve(&self, _host: &str) -> Resolving {
        Box::pin(std::future::pending())
    }
}

/// Leads every address to one place, as a hostile network would, and remembers what was asked for.
#[derive(Debug)]
pub(crate) struct Detour {
    to: SocketAddr,
    dialled: Mutex<Vec<SocketAddr>>,
}

impl Detour {
    pub(crate) fn to(to: SocketAddr) -> Arc<Self> {
        Arc::new(Self { to, dialled: Mutex::new(Vec::new()) })
    }

    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().clone()
    }
}

impl Dial for Detour {
    fn dial(
        &self,
        address: SocketAddr,
    ) -> Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>> {
        self.dialled.lock().push(address);
        Box::pin(TcpStream::connect(self.to))
    }
}
