//! The agent as programs meet it.
#![allow(missing_docs)]

mod cache;
mod cache_cases;
mod entrusted;
mod exchanges;
mod hostile;
mod house;
mod lost;
mod proxy;
mod scripted;
mod uploads;
