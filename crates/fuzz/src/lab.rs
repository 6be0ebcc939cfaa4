//! A lab's description: operators and tests write it, and traces come from anywhere.

use crate::input::Input;
use hoop_lab::text::{parse_bitrate, parse_bytes, parse_duration, parse_percent};
use hoop_lab::{Plan, Topology, Trace};
use std::path::Path;
use std::time::Duration;

pub fn lab(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let Some(text) = input.text() else { return };
    match kind {
        0 => quantities(text),
        1 => trace(text),
        _ => topology(text),
    }
}

fn quantities(text: &str) {
    if let Ok(rate) = parse_bitrate(text) {
        assert_eq!(parse_bitrate(&format!(" {text} ")).ok(), Some(rate), "blanks around it");
    }
    if let Ok(duration) = parse_duration(text) {
        assert!(duration <= Duration::from_nanos(u64::MAX));
    }
    let _ = parse_bytes(text);
    if let Ok(share) = parse_percent(text) {
        assert!((0.0..=1.0).contains(&share.as_f64()), "{text}");
    }
}

fn trace(text: &str) {
    let Ok(trace) = text.parse::<Trace>() else { return };
    assert!(trace.opportunities() > 0 && trace.period() > Duration::ZERO);
    assert!(trace.mean_rate().as_bps() > 0 || trace.period() > Duration::from_secs(1_000));
    assert_eq!(trace.opportunities(), text.lines().count());
}

fn topology(text: &str) {
    // A trace is a file of this machine, and none of an input's business.
    if text.contains("trace") {
        return;
    }
    let Ok(topology) = Topology::from_toml(text, Path::new("")) else { return };
    let Ok(plan) = Plan::new(&topology) else { return };
    drop(plan);
}
