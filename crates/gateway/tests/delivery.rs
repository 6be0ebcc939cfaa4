//! Delivery over real sockets: fair weather first, then each kind of bad.

mod support;

use http::Method;
use support::service::{Service, Weather};
use support::{LATER, config, id_of, post, sealed, start, until_state};

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_delivered_whole_and_its_sealed_answer_kept() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let gateway = start(config(folder.path())).await;
    let z = sealed(1, 300_000, LATER);
    let reply = post(gateway.address, &service.dest(), &z).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["state"]), (201, &"stored".into()), "{reply:?}");
    assert_eq!(reply.json()["monitor"], format!("http://{}/monitor?ID={}", gateway.address, id_of(&z)));
    let status = until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(status["answer"], "c2VhbGVkIGFuc3dlcg");
    assert_eq!(service.bytes(id_of(&z)), z);
    assert_eq!(service.count(&Method::HEAD, "/"), 0, "the first time nobody has to be asked");
    gateway.stop().await;
}
