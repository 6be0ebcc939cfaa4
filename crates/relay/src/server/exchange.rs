//! A flow that is one HTTP exchange: [`carry`]. `docs/edge.md` has what is said over it.

use super::origins::Origins;
use crate::codes;
use crate::exchange::{FlowBody, SECTION_BYTES, put, read_head, via};
use hoop_endpoint::{DeviceId, FlowReader, FlowStream, FlowWriter};
use hoop_head::{decode_request, encode_response};
use hoop_http::{Body, UnclearLength, empty, end_hop, settle_length, streamed};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING, VIA};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::io;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

/// How long a connection has to shut down after its answer.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// Reads a request from a flow, and writes the origin's answer to it.
pub(crate) async fn carry(flow: FlowStream, origins: &Origins) {
    let (device, mut status) = (flow.name().device, flow.status());
    let (reader, mut writer) = flow.into_split();
    let _under_way = origins.egress.counters.exchange();
    let carried = async {
        let request = read_request(reader).await?;
        let answered = origins.send(device, request).await?;
        // What is not kept ends with this.
        let connection = answered.connection;
        write_response(answered.response, &mut writer).await?;
        if let Some(mut connection) = connection {
            // It shuts down by itself, unless some of the request is left that its origin does not read.
            let _ = timeout(SHUTDOWN_MAX, connection.join_next()).await;
        }
        Ok(())
    };
    let carried = tokio::select! {
        carried = carried => carried,
        // Nobody waits for it any more.
        _ = status.wait_for(|status| status.over.is_some()) => return,
    };
    let Err(code) = carried else { return };
    refuse(device, code, origins, &writer);
}

fn refuse(device: DeviceId, code: u64, origins: &Origins, writer: &FlowWriter) {
    origins.egress.ended(device, code);
    writer.reset(code);
}

async fn read_request(mut reader: FlowReader) -> Result<Request<Body>, u64> {
    let malformed = |error: io::Error| {
        tracing::debug!(%error, "a flow brings no request");
        codes::MALFORMED
    };
    let (section, rest) = read_head(&mut reader).await.map_err(malformed)?;
    let request = decode_request(&section).map_err(io::Error::other).map_err(malformed)?;
    let (mut head, ()) = request.into_parts();
    if head.uri.scheme() != Some(&Scheme::HTTP) {
        return Err(codes::MALFORMED);
    }
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = FlowBody::new(reader, rest, length);
    let body = match length {
        Some(_) => streamed(body),
        // An HTTP/1.1 origin is told before the body whether there is one.
        None => match body.peeked().await.map_err(|_| codes::BROKEN)? {
            None => empty(),
            Some(body) => {
                head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                streamed(body)
            }
        },
    };
    Ok(Request::from_parts(head, body))
}

async fn write_response(response: Response<Incoming>, writer: &mut FlowWriter) -> Result<(), u64> {
    let (mut head, mut body) = response.into_parts();
    settle_length(&mut head.headers).map_err(|UnclearLength| codes::NO_HTTP)?;
    end_hop(&mut head.headers);
    head.headers.append(VIA, via(head.version));
    let mut section = Vec::new();
    encode_response(&head, &mut section).map_err(|error| {
        tracing::debug!(%error, "an origin's answer cannot be passed on");
        codes::NO_HTTP
    })?;
    if section.len() > SECTION_BYTES {
        return Err(codes::NO_HTTP);
    }
    // A flow that is over says so itself.
    let over = |_| codes::BROKEN;
    put(&section, writer).await.map_err(over)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "an answer broke off");
            codes::BROKEN
        })?;
        if let Ok(data) = frame.into_data() {
            writer.write_chunk(data).await.map_err(over)?;
        }
    }
    writer.shutdown().await.map_err(over)
}
