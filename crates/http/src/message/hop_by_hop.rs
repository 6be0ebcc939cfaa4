//! Fields of one hop: [`HOP_BY_HOP`].

/// Fields that concern one hop alone (RFC 9110 §7.6.1, RFC 7540 §3.2.1, and those that older software sends), in lower case.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
