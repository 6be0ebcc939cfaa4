//! What operators do is in the log, a line an act (target `audit`).

use crate::common::{curl, free_port, gateway};

#[test]
fn each_press_of_the_owners_buttons_is_a_line_in_the_log() {
    let world = tempfile::tempdir().unwrap();
    let port = free_port();
    let admin = format!("127.0.0.1:{port}");
    let gateway = gateway(world.path(), &["--admin", &admin]);
    let press = |button: &str, more: &[&str]| {
        let url = format!("http://{admin}{button}");
        let posted = curl(&[&["-X", "POST", "-o", "/dev/null", "-w", "%{http_code}"], more, &[&url]].concat());
        posted.out
    };
    let id = "id=00112233445566778899aabbccddeeff";
    assert_eq!(press("/pause", &[]), "303");
    assert_eq!(press("/resume", &[]), "303");
    assert_eq!(press("/drop", &["-d", id]), "404");
    assert_eq!(press("/drop", &["-d", "device=192.0.2.7"]), "303");
    assert_eq!(press("/pause", &["-H", "Origin: https://evil.example"]), "403");
    let log = gateway.log();
    let acts: Vec<_> = log.lines().filter(|line| line.contains(" audit: ")).collect();
    let known = [
        "act=\"pause\" who=\"owner's page\" what=\"all deliveries\" uploads=0 outcome=\"done\"",
        "act=\"resume\" who=\"owner's page\" what=\"all deliveries\" uploads=0 outcome=\"done\"",
        "act=\"drop\" who=\"owner's page\" what=\"upload 00112233445566778899aabbccddeeff\" uploads=0 outcome=\"upload-unknown\"",
        "act=\"drop\" who=\"owner's page\" what=\"device 192.0.2.7\" uploads=0 outcome=\"done\"",
        "act=\"pause\" who=\"owner's page\" what=\"\" uploads=0 outcome=\"origin-forbidden\"",
    ];
    assert_eq!(acts.len(), known.len(), "{acts:#?}");
    for (line, known) in acts.iter().zip(known) {
        assert!(line.contains(known), "{line}\nis not\n{known}");
    }
}
