use seekless_fs::source::Source;
fn main() {
    let p = std::env::args_os().nth(1).unwrap();
    for _ in 0..5 {
        let t = std::time::Instant::now();
        let s = seekless_source::DirectorySource::open(p.as_ref(), &Default::default()).unwrap();
        println!("{} nodes {:?}", s.tree().nodes().len(), t.elapsed());
    }
}
