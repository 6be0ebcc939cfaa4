//! The lab of a measurement: [`pair`].

use crate::failure::Failure;
use hoop_lab::{Host, Lab, Link, LinkConfig, Topology};

/// Two hosts, `a` and `b`, and the link `wire` between them.
pub(super) fn pair(up: LinkConfig, down: LinkConfig, seed: u64) -> Result<Lab, Failure> {
    let link = Link::new("wire", "a", "b").up(up).down(down);
    Ok(Lab::build(&Topology::new().seed(seed).host(Host::new("a")).host(Host::new("b")).link(link))?)
}
