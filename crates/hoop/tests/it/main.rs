//! The tests of the `hoop` program, one binary of them: each file is a module, and `cargo test -p hoop push::` runs one.

mod audit;
mod cli;
mod clocks;
mod common;
mod confined;
mod early;
mod fakes;
mod files;
#[path = "../flows/mod.rs"]
mod flows;
mod liars;
mod library;
mod named;
mod owner;
mod patient;
mod push;
mod receipts;
mod reload;
mod resume;
mod spool;
mod strangers;
mod terminal;
