//! The tests of a whole gateway, one binary of them: each file is a module, and `cargo test -p hoop-gateway delivery::` runs one.

mod admin;
mod bounds;
mod clocks;
mod crash;
mod crowds;
mod damage;
mod delivery;
mod early;
mod intake;
mod monitor;
mod pacing;
mod pages;
mod permits;
mod presence;
mod ranges;
mod resumable;
mod shares;
mod support;
