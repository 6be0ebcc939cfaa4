//! How many bytes heads take. `docs/head.md` has these figures.

use crate::vectors::{section_of, text_len};
use hoop_head::frame;

/// 150 requests for the small images of one page: the bytes of their text, and those of their heads with lengths.
fn images(head: &[&str]) -> (usize, usize) {
    let (mut text, mut heads) = (0, Vec::new());
    for image in 1..=150 {
        let first = format!("GET /images/{image:03}.jpg HTTP/1.1");
        let lines: Vec<_> = std::iter::once(first.as_str()).chain(head.iter().copied()).collect();
        text += text_len(&lines);
        frame(&section_of("request", &lines), &mut heads).unwrap();
    }
    (text, heads.len())
}

#[test]
fn requests_for_150_images_stay_small() {
    let curl = ["Host: photos.example", "User-Agent: curl/8.14.1", "Accept: */*"];
    let chromium = [
        "Host: photos.example",
        "Connection: keep-alive",
        "sec-ch-ua-platform: \"Linux\"",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
        "sec-ch-ua: \"Not:A-Brand\";v=\"8\", \"Chromium\";v=\"156\"",
        "sec-ch-ua-mobile: ?0",
        "Accept: image/jxl,image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Mode: no-cors",
        "Sec-Fetch-Dest: image",
        "Referer: https://photos.example/",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: en-US,en;q=0.9",
    ];
    let firefox = [
        "Host: photos.example",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
        "Accept: image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5",
        "Accept-Language: en-US,en;q=0.9",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Connection: keep-alive",
        "Referer: https://photos.example/",
        "Sec-Fetch-Dest: image",
        "Sec-Fetch-Mode: no-cors",
        "Sec-Fetch-Site: same-origin",
        "Priority: u=5, i",
    ];
    for (who, head, text, most) in [
        ("curl", &curl[..], 13_800, 6_000),
        ("Chromium", &chromium, 84_900, 12_900),
        ("Firefox", &firefox, 66_750, 11_100),
    ] {
        let (as_text, as_heads) = images(head);
        assert_eq!(as_text, text, "{who}");
        assert!(as_heads <= most, "{who}: {as_heads} bytes");
    }
}
