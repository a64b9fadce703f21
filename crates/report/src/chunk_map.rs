//! The chunks of an image, coloured by the reason why they are new, as a standalone HTML page.

use crate::table::{self, Table, counted, escape, grouped};
use seekless_units::{ByteLen, format_size};
use serde::Serialize;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const CHUNK_STYLE: &str = include_str!("chunk_map.css");
const SCRIPT: &str = include_str!("chunk_map.js");

/// Cells on a page; of more chunks, several share a cell.
const MOST_CELLS: usize = 1 << 18;

/// The reason why a chunk is drawn as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkClass {
    /// Zeros, which are stored nowhere.
    Zero,
    /// Another image has it.
    Equal,
    /// New only because blocks moved.
    Moved,
    /// New because of metadata.
    Metadata,
    /// New because of new contents.
    Contents,
}

impl ChunkClass {
    /// All of them, from the least remarkable to the most.
    pub const ALL: [Self; 5] =
        [Self::Zero, Self::Equal, Self::Moved, Self::Metadata, Self::Contents];

    /// Its letter in the data of the page, and in the names of colours.
    const fn letter(self) -> char {
        match self {
            Self::Zero => 'z',
            Self::Equal => 'e',
            Self::Moved => 'm',
            Self::Metadata => 'd',
            Self::Contents => 'c',
        }
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zero => "zeros",
            Self::Equal => "in an image before",
            Self::Moved => "new only because blocks moved",
            Self::Metadata => "new because of metadata",
            Self::Contents => "new because of new contents",
        }
    }
}

/// The chunks of one size of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkMap {
    /// The image.
    pub name: String,
    /// Bytes in a chunk.
    pub size: ByteLen,
    /// Each chunk, in order.
    pub chunks: Vec<ChunkClass>,
}

/// A page with maps and tables.
#[derive(Clone, Debug, Default)]
pub struct ChunkPage {
    /// The heading.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// The maps.
    pub maps: Vec<ChunkMap>,
    /// Named tables of figures, each with a note below (may be empty).
    pub tables: Vec<(String, Table, String)>,
}

/// A map, for the script.
#[derive(Serialize)]
struct MapData {
    /// Bytes in a chunk.
    size: u64,
    /// Chunks that share a cell.
    each: usize,
    /// Number of chunks.
    chunks: usize,
    /// Letters of the cells, each preceded by its repeat count (unless it is 1).
    cells: String,
}

impl ChunkMap {
    fn count(&self, class: ChunkClass) -> u64 {
        self.chunks.iter().filter(|&&own| own == class).count() as u64
    }

    /// The map as a sentence.
    fn in_words(&self) -> String {
        let chunks = counted(self.chunks.len() as u64, "chunk");
        let has_any = |class: &ChunkClass| self.count(*class) > 0;
        let parts: Vec<String> = ChunkClass::ALL
            .into_iter()
            .rev()
            .filter(has_any)
            .map(|class| format!("{} {}", grouped(self.count(class)), class.name()))
            .collect();
        format!("{chunks} of {} in {}: {}.", format_size(self.size), self.name, parts.join(", "))
    }

    fn data(&self) -> MapData {
        let each = self.chunks.len().div_ceil(MOST_CELLS).max(1);
        let most = |cell: &[ChunkClass]| cell.iter().max().copied().unwrap_or(ChunkClass::Zero);
        let letters: Vec<char> = self.chunks.chunks(each).map(|cell| most(cell).letter()).collect();
        let mut cells = String::new();
        for run in letters.chunk_by(|one, next| one == next) {
            if run.len() > 1 {
                let _ = write!(cells, "{}", run.len());
            }
            cells.extend(run.first());
        }
        MapData { size: self.size.get(), each, chunks: self.chunks.len(), cells }
    }
}

/// The page.
#[must_use]
pub fn html(page: &ChunkPage) -> String {
    let title = escape(&page.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{CHUNK_STYLE}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n<p>{}</p>\n</header>\n<p class=\"legend\">",
        escape(&page.subtitle)
    );
    for class in ChunkClass::ALL {
        let (letter, name) = (class.letter(), class.name());
        let _ = write!(html, "<span><i class=\"chunk-{letter}\"></i>{name}</span>");
    }
    html.push_str("</p>\n");
    for (at, map) in page.maps.iter().enumerate() {
        section(at, map, &mut html);
    }
    html.push_str("<div class=\"tables\">\n");
    table::sections(&page.tables, &mut html);
    let data: Vec<MapData> = page.maps.iter().map(ChunkMap::data).collect();
    let names: Vec<(char, &str)> =
        ChunkClass::ALL.into_iter().map(|class| (class.letter(), class.name())).collect();
    // Serialisation of these types cannot fail, and no `<` is in them.
    let data = serde_json::json!({ "maps": data, "names": names });
    let _ = write!(
        html,
        "</div>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    );
    html
}

/// A map. Readers who cannot see it get its text; with the focus on it, arrow keys move through its
/// chunks.
fn section(at: usize, map: &ChunkMap, html: &mut String) {
    let text = escape(&map.in_words());
    let _ = write!(
        html,
        "<section class=\"disk\">\n<h2>{} <small>in chunks of {}</small></h2>\n\
         <p class=\"counts\">{text}</p>\n\
         <canvas id=\"map-{at}\" tabindex=\"0\" role=\"img\" aria-label=\"Map of chunks. {text} \
         Arrow keys go through it.\" aria-describedby=\"tip\">{text}</canvas>\n",
        escape(&map.name),
        format_size(map.size),
    );
    let each = map.data().each;
    if each > 1 {
        let _ = writeln!(
            html,
            "<p class=\"note\">A cell is {each} chunks, and has the colour of the most remarkable.</p>"
        );
    }
    html.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(chunks: Vec<ChunkClass>) -> ChunkMap {
        ChunkMap { name: "<new> & \"image\"".into(), size: ByteLen::new(512 << 10), chunks }
    }

    #[test]
    fn a_map_has_a_text_and_its_cells() {
        use ChunkClass::{Contents, Equal, Metadata, Moved, Zero};
        let chunks = vec![Metadata, Equal, Equal, Equal, Moved, Contents, Contents, Zero];
        let page =
            ChunkPage { title: "<b>".into(), maps: vec![map(chunks)], ..ChunkPage::default() };
        let html = html(&page);
        assert!(html.contains("\"cells\":\"d3em2cz\""), "{html}");
        let text = "8 chunks of 512K in &lt;new&gt; &amp; &quot;image&quot;: 2 new because of new \
                    contents, 1 new because of metadata, 1 new only because blocks moved, 3 in an \
                    image before, 1 zeros.";
        assert!(html.contains(&format!("aria-label=\"Map of chunks. {text} Arrow keys")), "{html}");
        assert!(
            html.contains(&format!(">{text}</canvas>")),
            "the text stands in the canvas as well"
        );
        assert!(!html.contains("<b>") && !html.contains("<new>"));
        assert_eq!(html.matches("<script").count(), 2);
    }

    #[test]
    fn many_chunks_share_cells() {
        let mut chunks = vec![ChunkClass::Equal; 3 * MOST_CELLS];
        chunks[4] = ChunkClass::Contents;
        let page = ChunkPage { maps: vec![map(chunks)], ..ChunkPage::default() };
        let html = html(&page);
        assert!(html.contains("\"cells\":\"ec262142e\"") && html.contains("A cell is 3 chunks"));
        assert!(html.len() < 100_000, "{}", html.len());
    }
}
