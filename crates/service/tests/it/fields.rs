//! Which fields of a sealed head the application gets: those that browsers and upload libraries send, and none by which a sign-on proxy speaks.

use crate::support::device::{plaintext, seal_plaintext, ticket};
use crate::support::upstream::Upstream;
use crate::support::{Sidecar, bytes};
use hoop_service::Routes;
use std::collections::BTreeSet;

/// Fields that a head may have besides those of its own, with room to spare.
const AT_ONCE: usize = 80;

/// The names of a table, without remarks.
pub fn names(table: &'static str) -> Vec<&'static str> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.trim_start_matches("~ ").split_whitespace().next().unwrap()).collect()
}

/// What reached the application of these fields, each sent with the value `forged`, in lower case.
async fn reached(names: &[String], routes: Routes) -> BTreeSet<String> {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    for names in names.chunks(AT_ONCE) {
        let fields: String = names.iter().map(|name| format!("{name}: forged\r\n")).collect();
        let ticket = ticket(&sidecar).await;
        let sealed = seal_plaintext(&ticket, &plaintext(&ticket, "POST /upload", &fields, &bytes(100, 1)));
        // 200: the application has answered already.
        let status = sealed.post(&sidecar).await.status;
        assert!(status == 202 || status == 200, "{status}");
        sidecar.reaches(&ticket.id, "accepted").await;
    }
    let heads: Vec<_> = upstream.arrivals().iter().map(|arrival| arrival.head.clone()).collect();
    let fields = heads.iter().flat_map(|head| head.lines().skip(1)).filter_map(|line| line.split_once(':'));
    fields.filter(|(_, value)| value.contains("forged")).map(|(name, _)| name.to_ascii_lowercase()).collect()
}

#[tokio::test]
async fn no_field_by_which_a_proxy_speaks_gets_in_with_a_sealed_head() {
    let table = names(include_str!("../identity-headers.txt"));
    assert!(table.len() >= 200, "{}", table.len());
    let upper = table.iter().map(|name| name.to_ascii_uppercase());
    let under = table.iter().map(|name| name.replace('-', "_"));
    let all: Vec<String> = table.iter().map(|name| (*name).to_owned()).chain(upper).chain(under).collect();
    assert_eq!(reached(&all, Routes::default()).await, BTreeSet::new());
}

#[tokio::test]
async fn what_browsers_and_upload_libraries_send_reaches_the_application() {
    let table: Vec<String> = names(include_str!("../upload-headers.txt")).into_iter().map(str::to_owned).collect();
    let came = reached(&table, Routes::default()).await;
    let lost: Vec<_> = table.iter().filter(|name| !came.contains(&name.to_ascii_lowercase())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn an_operator_keeps_fields_that_are_not_on_the_list() {
    let names = ["X-Album", "X-Auth-User", "X-Forwarded-User"].map(str::to_owned);
    let routes = Routes::parse("keep = [\"X-Album\"]").unwrap();
    assert_eq!(reached(&names, routes).await, ["x-album".to_owned()].into());
}

#[tokio::test]
async fn no_spelling_of_a_path_escapes_the_limit_of_its_route() {
    let upstream = Upstream::willing().await;
    let routes = Routes::parse("[[route]]\npath = \"/wiki/Special:Upload\"\nmax_bytes = 1000").unwrap();
    let sidecar = Sidecar::with(upstream.address, |config| config.routes = routes).await;
    for (target, expected) in [
        ("/wiki/Special:Upload", "too-large"),
        ("/wiki/Special%3AUpload", "too-large"),
        ("/wiki/Special%3aUpload/", "too-large"),
        ("/wiki%2FSpecial:Upload", "too-large"),
        ("/wiki;a=b/Special:Upload;c", "too-large"),
        ("/wiki/Special:Upload.", "too-large"),
        ("/wiki/./Special:Upload", "head-invalid"),
        ("/x/../wiki/Special:Upload", "head-invalid"),
        ("/x/..;/wiki/Special:Upload", "head-invalid"),
        ("/x%2F..%2Fwiki/Special:Upload", "head-invalid"),
        ("/wiki//Special:Upload", "head-invalid"),
        ("/wiki%5CSpecial:Upload", "head-invalid"),
        ("/%77iki/Special:Upload", "head-invalid"),
    ] {
        let ticket = ticket(&sidecar).await;
        let sealed = seal_plaintext(&ticket, &plaintext(&ticket, &format!("POST {target}"), "", &bytes(2_000, 1)));
        assert_eq!(sealed.post(&sidecar).await.problem().1, expected, "{target}");
    }
    let ticket = ticket(&sidecar).await;
    let sealed = seal_plaintext(&ticket, &plaintext(&ticket, "POST /wiki/Special:Uploads", "", &bytes(2_000, 1)));
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&ticket.id, "accepted").await;
    assert_eq!(upstream.arrivals().len(), 1, "nothing else got there");
}
