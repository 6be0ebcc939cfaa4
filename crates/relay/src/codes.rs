//! Why a relay ends a flow (END; `docs/flow.md` §6).

/// The service is none that the relay has, or the flow brings no request.
pub const MALFORMED: u64 = 0x100;
/// The relay does not go there.
pub const FORBIDDEN: u64 = 0x101;
/// There is no such name.
pub const UNKNOWN_NAME: u64 = 0x102;
/// The destination does not answer, or refuses the connection.
pub const UNREACHABLE: u64 = 0x103;
/// The connection to the destination broke off.
pub const BROKEN: u64 = 0x104;
/// The device begins more connections than its share, or has so many that none is left for it.
pub const TOO_MANY: u64 = 0x105;
/// The device was shut out.
pub const REVOKED: u64 = 0x106;
/// The destination refuses the connection. This and the following are said to whoever waits for it (`CONNECT`, an exchange); others hear [`UNREACHABLE`].
pub const REFUSED: u64 = 0x107;
/// The destination has not answered in time.
pub const TIMED_OUT: u64 = 0x108;
/// The destination's network says that it is not there.
pub const NO_HOST: u64 = 0x109;
/// No network of the relay's leads there.
pub const NO_NETWORK: u64 = 0x10a;
/// What answers there does not speak HTTP, or its answer cannot be passed on.
pub const NO_HTTP: u64 = 0x10b;
/// The relay has nothing of the exchange that the device would go on with.
pub const UNKNOWN_EXCHANGE: u64 = 0x10c;
/// The destination's certificate is not valid: expired, for another name, with more than four others, or of nobody whom the relay believes.
pub const UNTRUSTED: u64 = 0x10d;
/// What answers there speaks no TLS, or none that the relay speaks.
pub const NO_TLS: u64 = 0x10e;
/// An earlier relay had begun to pass a request on, and its answer is lost: nobody knows whether its server acted on it.
pub const OUTCOME_UNKNOWN: u64 = 0x10f;
/// The device was away for long, and all of its answer is on disk: a new flow goes on with it, as after a restart of the relay.
pub const PARKED: u64 = 0x110;

/// What a device hears that does not wait for the connection: fewer reasons.
pub(crate) const fn in_general(code: u64) -> u64 {
    match code {
        REFUSED | TIMED_OUT | NO_HOST | NO_NETWORK => UNREACHABLE,
        other => other,
    }
}
