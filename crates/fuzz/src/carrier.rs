//! What devices send to a server's WebSocket: frames, and in them the messages of lanes.

use hoop_carrier::fuzzing::websocket as heard;

/// However it is cut on the way, it is read the same; and what is held is bounded, which reading it asserts.
pub fn websocket(bytes: &[u8]) {
    let whole = heard(bytes, 0);
    for cut in [1, 7, 1_000] {
        assert_eq!(whole, heard(bytes, cut), "cut every {cut} bytes");
    }
}
