//! Makes an ext4 image of a tree in which the files of a list lie first, in the order of the
//! list, and says what that is worth.
//!
//! ```text
//! cargo run -p seekless --example lay_out -- rootfs/ boot.list disk.img
//! ```

use seekless::{Build, Error, Trace};
use std::error;
use std::fs;

fn main() -> Result<(), Box<dyn error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tree, list, image] = args.as_slice() else {
        return Err("usage: lay_out TREE LIST IMG".into());
    };
    let list = fs::read_to_string(list).map_err(|error| Error::io(list, &error))?;
    let trace = Trace::of_paths(list.lines());

    let plain = tempfile::NamedTempFile::new()?;
    Build::of([tree]).replace().write(plain.path())?;
    let built = Build::of([tree]).trace(trace.clone()).write(image)?;

    println!("{image}: {} bytes, {} files", built.len, built.files);
    let chunk = 512 << 10;
    for (name, path) in [("in order of names", plain.path()), ("laid out", image.as_ref())] {
        let score = seekless::open(path)?.score(&trace, &[chunk])?;
        println!("{name}: {} seeks, {} chunks of 512K", score.seeks, score.chunks[&chunk]);
    }
    Ok(())
}
