//! A device finds the gateway by multicast DNS, over a link, with nothing configured.

use hoop_testbed::{House, HouseConfig, ORIGIN};
use hoop_units::Bitrate;
use serde_json::Value;

fn house() -> House {
    let config = HouseConfig { lan: Bitrate::mbps(200), up: Bitrate::mbps(50), ..HouseConfig::default() };
    House::build(config).expect("a house: run as root, or where user namespaces are allowed")
}

fn push(house: &House) -> Value {
    let file = house.file("a.bin", 200_000).unwrap();
    let mut push = house.push("auto");
    push.args([
        "--json",
        "--wait",
        "accepted",
        "-F",
        &format!("photo=@{}", file.display()),
        &format!("{ORIGIN}/photos"),
    ]);
    let output = push.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_device_finds_the_gateway_on_its_lan_with_nothing_configured() {
    let house = house();
    let _wall = house.start_photo_wall().unwrap();
    let _service = house.start_service(8000, &[]).unwrap();
    let _gateway = house.start_gateway(&[]).unwrap();
    let said = push(&house);
    assert_eq!(said["via"], "gateway", "{said}");
}

#[test]
fn without_a_gateway_the_upload_goes_straight_to_the_service() {
    let house = house();
    let wall = house.start_photo_wall().unwrap();
    let _service = house.start_service(8000, &[]).unwrap();
    let said = push(&house);
    assert_eq!((said["via"].as_str(), said["state"].as_str()), (Some("direct"), Some("accepted")), "{said}");
    assert_eq!(wall.text().matches("\"event\":\"photo\"").count(), 1);
}

/// Answers that nobody asked for (RFC 6762 §6): addresses of made-up names that live for 68 years, some sixty in a packet.
fn made_up_names(packet: u32) -> Vec<u8> {
    const RECORDS: u16 = 60;
    let mut bytes = [&[0, 0, 0x84, 0, 0, 0][..], &RECORDS.to_be_bytes(), &[0; 4]].concat();
    for record in 0..u32::from(RECORDS) {
        let label = format!("{:07x}", packet * u32::from(RECORDS) + record);
        // The first name's `local` stands at 20.
        let domain: &[u8] = if record == 0 { b"\x05local\0" } else { &[0xc0, 20] };
        bytes.extend(
            [&[7], label.as_bytes(), domain, &[0, 1, 0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 4, 10, 0, 0, 1]].concat(),
        );
    }
    bytes
}

#[test]
fn a_flood_of_made_up_names_ends_no_gateway_and_it_is_found_again() {
    const PACKETS: u32 = 6_000;
    let house = house();
    let _wall = house.start_photo_wall().unwrap();
    let _service = house.start_service(8000, &[]).unwrap();
    let gateway = house.start_gateway(&[]).unwrap();
    assert_eq!(push(&house)["via"], "gateway");
    let resident = |gateway: &hoop_testbed::Program| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = resident(&gateway);
    let to = (house.lab().address_on("gateway", "lan"), 5353);
    let flood = || {
        let socket = std::net::UdpSocket::bind(("0.0.0.0", 5353)).unwrap();
        for packet in 0..PACKETS {
            socket.send_to(&made_up_names(packet), to).unwrap();
            if packet % 8 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    };
    house.lab().in_host("device", flood);
    gateway.wait_for("the announcement ended", std::time::Duration::from_secs(60)).expect("it says so");
    assert!(resident(&gateway) < before + 16 * 1024, "{before} and {} kB", resident(&gateway));
    let again = (0..30).any(|_| push(&house)["via"] == "gateway");
    assert!(again, "{}", gateway.text());
}
