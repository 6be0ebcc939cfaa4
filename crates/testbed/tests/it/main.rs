//! The end-to-end tests in the lab, one binary of them, so that they wait side by side: each file is a module, and
//! `cargo test -p hoop-testbed walk::` runs one. `kill` has a binary of its own: it keeps a house busy for as long as it is told to.

mod copyparty;
mod cuts;
mod discovery;
mod ends;
mod fallback;
mod flows;
mod front;
mod killed;
mod names;
mod others;
mod programs;
mod rebinding;
mod tun;
mod walk;
