//! The ways out of the machine that somebody chose.

use hoop_relay::NetworkPath;

/// By each interface that was named; none: as the system goes.
pub fn ways(interfaces: &[String]) -> Vec<NetworkPath> {
    match interfaces {
        [] => vec![NetworkPath::any()],
        names => names.iter().map(|name| NetworkPath::interface(name)).collect(),
    }
}
