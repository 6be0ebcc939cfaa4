//! The tests of a whole service, one binary of them: each file is a module, and `cargo test -p hoop-service post::` runs one. Beside it
//! stand those that need a process to themselves: its memory is measured, its log is caught, or all that it does to a folder recorded.

mod broken;
mod clocks;
mod crash;
mod crowds;
mod csrf;
mod fields;
mod full;
mod garbage;
mod heads;
mod keep_alive;
mod leaving;
mod lists;
mod metrics;
mod notes;
mod outcomes;
mod owners;
mod pace;
mod pages;
mod post;
mod proxy;
mod replay;
mod room;
mod settings;
mod signatures;
mod slow;
mod support;
mod tickets;
mod tls;
