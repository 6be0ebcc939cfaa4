//! A device's end: [`WebSocketDevice`].

use super::carrier::WebSocketCarrier;
use super::driver::{ConnConfig, Conversation, violated};
use super::frames::{Frames, Role, Violation};
use super::shared::Shared;
use super::upgrade::{Asked, connected};
use super::{BoundBy, WebSocketOptions};
use crate::socket::Local;
use crate::tcp::Tcp;
use crate::tls::exported;
use bytes::BytesMut;
use hoop_flow::Binding;
use hoop_flow::frame::Frame;
use hoop_tls::Allowance;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// An HTTP proxy that connects (RFC 9110 §9.3.6).
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Where it is.
    pub address: SocketAddr,
    /// What `Proxy-Authorization` says, if it wants that: `Basic` and base64 of name and password.
    pub authorization: Option<String>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it is told is a secret.
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What a device makes its carriers with.
#[derive(Clone)]
pub struct WebSocketDevice {
    local: Local,
    tls: TlsConnector,
    options: WebSocketOptions,
    proxy: Option<Proxy>,
}

impl fmt::Debug for WebSocketDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("WebSocketDevice");
        debug.field("local", &self.local).field("options", &self.options).field("proxy", &self.proxy);
        debug.finish_non_exhaustive()
    }
}

impl WebSocketDevice {
    /// Carriers that leave by `local`, and go through `proxy` if there is one.
    pub fn new(local: Local, tls: &rustls::ClientConfig, options: WebSocketOptions, proxy: Option<Proxy>) -> Self {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        tls.enable_early_data = false;
        Self { local, tls: TlsConnector::from(Arc::new(tls)), options, proxy }
    }

    /// Whether its carriers go through a proxy.
    pub fn has_proxy(&self) -> bool {
        self.proxy.is_some()
    }

    /// A carrier to a server whose certificate is for `name`. A proxy is asked for that name and the address's port, and finds the address itself.
    ///
    /// It tries for as long as the system does; whoever drops it gives it up. Whether there is a WebSocket at the server is known only once it answers: if not, the carrier
    /// is gone at once, with the reason.
    ///
    /// # Errors
    /// If there is no way, or TLS fails; [`Refused`](super::Refused) within it if a proxy refuses, or a server where [`BoundBy::Nonces`].
    pub async fn connect(&self, server: SocketAddr, name: &str) -> io::Result<WebSocketCarrier> {
        let host = authority(name, server.port());
        let to = self.proxy.as_ref().map_or(server, |proxy| proxy.address);
        let socket = TcpSocket::from_std_stream(self.local.tcp(to)?.into());
        let mut tcp = Tcp::new(socket.connect(to).await?)?;
        if let Some(proxy) = &self.proxy {
            proxy.connect(&mut tcp, &host).await?;
        }
        let watch = tcp.watch();
        let tls_name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let allowance = Allowance::default();
        let stream = self.tls.connect(tls_name, allowance.below(tcp)).await?;
        let exported = exported(stream.get_ref().1)?;
        let stream = allowance.above(stream);
        let host = host.strip_suffix(":443").unwrap_or(&host);
        let (binding, asked, conversation) = self.ask(stream, host, exported).await?;
        let shared = Shared::new(true);
        let carrier = WebSocketCarrier::new(&shared, binding, watch, to);
        let WebSocketOptions { idle, keep_alive, patience, .. } = self.options;
        let config = ConnConfig { role: Role::Device, idle, keep_alive, patience };
        tokio::spawn(conversation.run(shared, config, asked));
        Ok(carrier)
    }

    /// Whether a machine answers at this address, if only that nobody listens there.
    pub(crate) fn is_there(&self, address: SocketAddr) -> impl Future<Output = bool> + Send + use<> {
        let socket = self.local.tcp(address);
        async move {
            let Ok(socket) = socket else { return false };
            match TcpSocket::from_std_stream(socket.into()).connect(address).await {
                Ok(_) => true,
                Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            }
        }
    }

    /// Where the proxy is, if there is one.
    pub(crate) fn proxy_address(&self) -> Option<SocketAddr> {
        self.proxy.as_ref().map(|proxy| proxy.address)
    }

    /// Asks for the WebSocket; awaits it only where the binding is made by what follows.
    async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: S,
        host: &str,
        exported: Binding,
    ) -> io::Result<(Binding, Option<Asked>, Conversation<S>)> {
        let asked = Asked::new(host, &self.options.path);
        stream.write_all(asked.request.as_bytes()).await?;
        stream.flush().await?;
        let (role, frames) = (Role::Device, Frames::new(Role::Device));
        let mut conversation = Conversation { stream, buffer: BytesMut::new(), frames, role };
        if self.options.bound_by == BoundBy::Exporter {
            return Ok((exported, Some(asked), conversation));
        }
        asked.answered(&mut conversation.stream, &mut conversation.buffer).await?;
        let binding = challenge(&mut conversation).await?;
        Ok((binding, None, conversation))
    }
}

impl Proxy {
    async fn connect(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), host: &str) -> io::Result<()> {
        let authorization = match &self.authorization {
            Some(secret) if secret.contains(['\r', '\n']) => return Err(io::ErrorKind::InvalidInput.into()),
            Some(secret) => format!("Proxy-Authorization: {secret}\r\n"),
            None => String::new(),
        };
        let request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        connected(stream).await
    }
}

/// A name, or an address in its brackets, and a port.
fn authority(name: &str, port: u16) -> String {
    match name.contains(':') {
        true => format!("[{name}]:{port}"),
        false => format!("{name}:{port}"),
    }
}

/// Says HELLO and hears the CHALLENGE.
async fn challenge<S: AsyncRead + AsyncWrite + Unpin>(conversation: &mut Conversation<S>) -> io::Result<Binding> {
    let mut ours = [0; 32];
    SystemRandom::new().fill(&mut ours).map_err(|_| io::Error::other("the system has no dice"))?;
    let mut hello = Vec::new();
    Frame::Hello { nonce: ours }.put(&mut hello);
    conversation.say(&hello).await?;
    let message = conversation.message().await?;
    let mut rest = &message[..];
    match Frame::take(&mut rest) {
        Ok(Some(Frame::Challenge { nonce })) if rest.is_empty() => Ok(Binding::of_nonces(&ours, &nonce)),
        _ => Err(violated(Violation::Binding("CHALLENGE"))),
    }
}
