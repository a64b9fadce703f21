//! Lists the files of an image as JSON, one line each.
//!
//! ```text
//! cargo run -p seekless --example manifest -- disk.img
//! ```

use std::error;

fn main() -> Result<(), Box<dyn error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: manifest IMG")?;
    for entry in seekless::open(path)?.walk()? {
        println!("{}", serde_json::json!({ "path": entry.path, "inode": entry.metadata }));
    }
    Ok(())
}
