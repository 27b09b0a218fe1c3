//! Connections for protocols other than HTTP, such as mail.
//!
//! It owns the order of steps in which a plaintext connection is upgraded to TLS (STARTTLS). It does not speak those protocols. Invariants:
//! the same allow-list and the same address checks as for HTTP; a connection to an `https:` URL is never returned before TLS is
//! established.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::client::EgressClient;
use crate::destination::Scheme;
use crate::error::EgressError;
use crate::request;
use crate::stream::EgressStream;

impl EgressClient {
    /// Opens a connection to scheme, host and port of a URL: with TLS from the first byte for `https:`.
    ///
    /// # Errors
    ///
    /// As for [`EgressClient::send`], for everything that happens before a request.
    pub async fn connect(&self, url: &Url) -> Result<EgressStream, EgressError> {
        let connector = self.unnamed_connector();
        let destination = request::destination_of(&uri_of(url)?, &connector.dialling.policy)?;
        connector.connect(&destination).await
    }

    /// Opens a plaintext connection, lets `agree` ask the peer for TLS, and then starts TLS. `agree` gets the bare connection, and must not
    /// read past the peer's answer.
    ///
    /// # Errors
    ///
    /// As for [`EgressClient::connect`], and what `agree` answers; [`EgressError::UrlUnusable`] unless the URL is `https:`.
    pub async fn connect_upgraded<A, F>(
        &self,
        url: &Url,
        agree: A,
    ) -> Result<EgressStream, EgressError>
    where
        A: FnOnce(TcpStream) -> F + Send,
        F: Future<Output = Result<TcpStream, EgressError>> + Send,
    {
        let connector = self.unnamed_connector();
        let dialling = Arc::clone(&connector.dialling);
        let destination = request::destination_of(&uri_of(url)?, &dialling.policy)?;
        if destination.scheme != Scheme::Https {
            return Err(EgressError::UrlUnusable {
                reason: "a connection is upgraded to TLS for `https` alone",
            });
        }
        let opening = async {
            let addresses = dialling.checked_addresses(&destination).await?;
            let stream = dialling.dial_checked(&destination, &addresses).await?;
            connector.secure(&destination, agree(stream).await?).await
        };
        let timeout_ms = dialling.limits.connect_timeout_ms;
        timeout(Duration::from_millis(timeout_ms), opening).await.unwrap_or_else(|_elapsed| {
            Err(EgressError::ConnectTimeout { destination: destination.to_string(), timeout_ms })
        })
    }
}

fn uri_of(url: &Url) -> Result<Uri, EgressError> {
    url.as_str()
        .parse()
        .map_err(|_invalid| EgressError::UrlUnusable { reason: "it is not a URI for requests" })
}
