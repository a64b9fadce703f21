//! Results and maps for people: on a terminal, as HTML, as lines of JSON.
//!
//! Knows nothing of file systems: whoever fills its structs does. Text that
//! comes from an image or a trace is data here, whatever it holds; it is
//! escaped where it meets HTML or JavaScript.
//!
//! - [`table`]: figures side by side
//! - [`reads`]: what was read in which order, and for which file
//! - [`disk`]: what lies where on a disk
//! - [`grid`]: a disk cut into rows of cells; `fold`: rows with nothing to show
//! - [`heat`]: figures over two keys as coloured fields
//! - [`terminal`]: the map as text
//! - [`page`]: the map as one HTML page
//! - [`bars`]: figures as bars, with marks where others measured them
//! - [`curves`]: figures as curves over a run
//! - [`seekplot`]: where requests were, and when; [`axis`]: round numbers
//! - [`sections`]: one HTML page of such parts

pub mod axis;
pub mod bars;
pub mod curves;
pub mod disk;
mod fold;
pub mod grid;
pub mod heat;
pub mod page;
pub mod reads;
pub mod sections;
pub mod seekplot;
pub mod table;
pub mod terminal;
