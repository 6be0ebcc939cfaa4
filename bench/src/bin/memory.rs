//! 10 GB through a gateway that may have little memory: one sender with a cgroup of 8 MiB, 64 senders at once with one of 32 MiB.
//!
//! The cgroup counts what the kernel caches of the files, too, so what is shown to fit is the whole of it. Resident is the gateway's peak, `VmHWM`, program pages included.
//! The gateway is the one that routers get (`make router`), and syncs as ever.
//!
//! `--gb N` sends another amount.

use hoop_bench::peers::{Build, Cgroup, Peer};
use hoop_bench::posts::{SealedBody, run};
use hoop_bench::{Table, Verdict, number};
use std::process::ExitCode;

fn main() -> ExitCode {
    let total = number("--gb").unwrap_or(10) * 1_000_000_000;
    let mut verdict = Verdict::default();
    let mut table = Table::new(["senders", "cgroup MiB", "each sends MB", "MB/s", "resident KiB", "limit"]);
    for (clients, limit_mib, resident_limit) in [(1, 8, 8192.0), (64, 32, 10_240.0)] {
        let folder = tempfile::Builder::new().prefix("hoop-memory").tempdir_in(".").expect("a folder on disk");
        let cgroup = Cgroup::new(limit_mib << 20);
        let body = SealedBody::of_plaintext(total / clients);
        let server = Peer::Gateway.start(folder.path(), Build::Router, Some(&cgroup));
        let cost = run(Peer::Gateway, &server, folder.path(), &body, clients, clients);
        let holds = verdict.at_most(&format!("{clients} senders, resident KiB"), cost.resident_kib, resident_limit);
        table.row([
            clients.to_string(),
            limit_mib.to_string(),
            (body.len / 1_000_000).to_string(),
            format!("{:.0}", body.len as f64 * clients as f64 / 1e6 / cost.seconds),
            format!("{:.0}", cost.resident_kib),
            format!("{:.0} MiB {holds}", resident_limit / 1024.0),
        ]);
    }
    println!("{}", table.render());
    verdict.exit()
}
