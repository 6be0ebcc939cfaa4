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
