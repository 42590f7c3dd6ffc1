#![allow(missing_docs, clippy::print_stdout)]
use std::time::{Duration, Instant};
use hostler_client::{Client, Endpoint, JobFilter};
use hostler_model::*;
use hostler_proto::api::*;
fn req(key: String, n: Option<u32>) -> SubmitRequest {
    SubmitRequest { key, spec: JobSpec { name: "x".into(), work: Work::Command { argv: vec!["true".into()], directory: "/".into() },
        request: Request { cpus: 1, memory_bytes: 1 << 20 }, time_limit_ms: None, array: n.map(|n| format!("0-{n}").parse().unwrap()), after: vec![], priority: 0, hold: false,
        requeue: false, environment: Default::default(), pty: None, grace_ms: None, umask: None } }
}
fn rss(pid: u32) -> String { std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap().lines().filter(|l| l.starts_with("VmRSS")||l.starts_with("RssAnon")||l.starts_with("Threads")).collect::<Vec<_>>().join(" ") }
fn cpu(pid: u32) -> u64 { let s = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap(); let v: Vec<_> = s.rsplit_once(')').unwrap().1.split_whitespace().collect(); v[11].parse::<u64>().unwrap()+v[12].parse::<u64>().unwrap() }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "head" {
        let d: std::path::PathBuf = args[2].clone().into();
        hostler_head::run(hostler_head::Config { socket: d.join("s"), directory: d, listen: "127.0.0.1:0".parse().unwrap(), embedded: true }).unwrap();
        return;
    }
    let d = args[2].clone();
    std::fs::create_dir_all(&d).unwrap();
    let t0 = Instant::now();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap()).args(["head", &d]).spawn().unwrap();
    while !std::path::Path::new(&d).join("head.json").exists() { std::thread::sleep(Duration::from_millis(1)); }
    println!("ready after {:?}", t0.elapsed());
    let total: u64 = args[3].parse().unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let pid = child.id();
        tokio::time::sleep(Duration::from_secs(2)).await;
        println!("idle {}", rss(pid));
        let c0 = cpu(pid); tokio::time::sleep(Duration::from_secs(10)).await; println!("cpu ticks in 10 s: {}", cpu(pid)-c0);
        let client = || Client::new(Endpoint::Unix(format!("{d}/s").into()));
        let c = client();
        let t = Instant::now(); let mut n = 0;
        while t.elapsed() < Duration::from_secs(3) { c.submit(&req(format!("s{n}"), None)).await.unwrap(); n += 1; }
        println!("sequential {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
        let t = Instant::now();
        let tasks: Vec<_> = (0..16).map(|k| { let c = client(); tokio::spawn(async move { let t = Instant::now(); let mut n = 0; while t.elapsed() < Duration::from_secs(3) { c.submit(&req(format!("p{k}-{n}"), None)).await.unwrap(); n += 1; } n }) }).collect();
        let mut sum = 0; for t in tasks { sum += t.await.unwrap(); }
        println!("16 at once {:.0}/s", sum as f64 / t.elapsed().as_secs_f64());
        let have = c.jobs(&JobFilter::default()).await.unwrap().total;
        let t = Instant::now(); let fill = total.saturating_sub(have);
        let tasks: Vec<_> = (0..64).map(|k| { let c = client(); tokio::spawn(async move { for n in 0..fill/64 { c.submit(&req(format!("f{k}-{n}"), None)).await.unwrap(); } }) }).collect();
        for t in tasks { t.await.unwrap(); }
        println!("64 at once {:.0}/s", fill as f64 / t.elapsed().as_secs_f64());
        println!("{} jobs, {}", c.jobs(&JobFilter::default()).await.unwrap().total, rss(pid));
        for (name, f) in [("page", JobFilter::default()), ("pending", JobFilter { states: vec![JobState::Pending], ..JobFilter::default() }), ("running", JobFilter { states: vec![JobState::Running], ..JobFilter::default() }), ("before 500", JobFilter { before: Some(JobId(500)), ..JobFilter::default() }), ("1000", JobFilter { limit: Some(1000), ..JobFilter::default() })] {
            let mut best = Duration::MAX; let mut worst = Duration::ZERO;
            for _ in 0..10 { let t = Instant::now(); c.jobs(&f).await.unwrap(); best = best.min(t.elapsed()); worst = worst.max(t.elapsed()); }
            println!("list {name}: {best:?}..{worst:?}");
        }
        let t = Instant::now(); c.info().await.unwrap(); println!("info {:?}", t.elapsed());
        let t = Instant::now(); c.why(JobId(total/2)).await.unwrap(); println!("why {:?}", t.elapsed());
        c.submit(&req("array".into(), Some(999_999))).await.unwrap();
        let t = Instant::now(); c.jobs(&JobFilter::default()).await.unwrap(); println!("list with 1M array {:?}", t.elapsed());
    });
    child.kill().unwrap(); child.wait().unwrap();
    let t0 = Instant::now();
    std::fs::remove_file(format!("{d}/head.json")).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap()).args(["head", &d]).spawn().unwrap();
    while !std::path::Path::new(&d).join("head.json").exists() { std::thread::sleep(Duration::from_millis(1)); }
    println!("back after kill {:?} {}", t0.elapsed(), rss(child.id()));
    child.kill().unwrap(); child.wait().unwrap();
}
