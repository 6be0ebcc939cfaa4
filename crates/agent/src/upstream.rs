//! A connection to a web server over a flow: [`Upstream`], as it is or by TLS.

use crate::failure::Failure;
use hoop_endpoint::FlowStream;
use hoop_tls::{Above, Allowance, Below};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A flow to a web server, and what is spoken over it.
pub(crate) enum Upstream {
    Plain(FlowStream),
    Tls(Box<Above<TlsStream<Below<FlowStream>>>>),
}

impl Upstream {
    /// Speaks TLS over a flow with the server of this name or address.
    pub(crate) async fn secure(flow: FlowStream, host: &str, tls: Arc<ClientConfig>) -> Result<Self, Failure> {
        let mut status = flow.status();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Failure::NoName)?;
        let allowance = Allowance::default();
        let stream = TlsConnector::from(tls).connect(name, allowance.below(flow)).await.map_err(|error| {
            tracing::debug!(%error, host, "no TLS");
            let told = error.get_ref().and_then(|told| told.downcast_ref::<rustls::Error>());
            match (told, status.borrow_and_update().over) {
                (Some(rustls::Error::InvalidCertificate(_)), _) => Failure::Untrusted,
                (Some(_), _) => Failure::NoTls,
                (None, Some(over)) => over.into(),
                // It ended where a handshake was expected.
                (None, None) => Failure::NoTls,
            }
        })?;
        Ok(Self::Tls(Box::new(allowance.above(stream))))
    }

    pub(crate) fn flow(&mut self) -> &mut FlowStream {
        match self {
            Self::Plain(flow) => flow,
            Self::Tls(stream) => stream.get_mut().get_mut().0.get_mut(),
        }
    }

    /// Ends it with this code, so that the server sees a connection that breaks off.
    pub(crate) fn reset(self, code: u64) {
        match self {
            Self::Plain(flow) => flow.reset(code),
            Self::Tls(stream) => stream.into_inner().into_inner().0.into_inner().reset(code),
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn ReadWrite> {
        match self.get_mut() {
            Self::Plain(flow) => Pin::<&mut FlowStream>::new(flow),
            Self::Tls(stream) => Pin::<&mut Above<_>>::new(stream),
        }
    }
}

trait ReadWrite: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ReadWrite for T {}

impl AsyncRead for Upstream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, into)
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
