use seekless_lab::*;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = std::fs::read_to_string(&args[0]).unwrap();
    let e = experiment::Experiment::parse(&text, &args[0]).unwrap();
    let w = plan::Wanted { only: args[1..].to_vec(), ..Default::default() };
    for id in plan::runs(&e, &w).unwrap() {
        let t = std::time::Instant::now();
        let r = run::perform(&e, "", &id, None).unwrap();
        for p in &r.phases {
            let c = &p.counts;
            println!("{id:<40} {:<6} {:8.2}s cpu {:6.2} busy {:7.2} r {:6} sw {:6} aw {:6} seeks {:6} dist {:7} MB wr {:5} MB  rb {} lim {} rush {}", p.phase, p.seconds, c.cpu_ns as f64/1e9, c.disk.busy_ns as f64/1e9, c.disk.reads, c.disk.sync_writes, c.disk.async_writes, c.disk.seeks, c.disk.seek_bytes>>20, c.disk.written_bytes>>20, c.rolled_back_writes, c.max_limit_hit, c.rush_requests);
        }
        println!("   real {:.2}", t.elapsed().as_secs_f64());
    }
}
