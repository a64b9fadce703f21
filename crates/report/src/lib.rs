//! Results and maps for people: on a terminal, as HTML, as lines of JSON.
//!
//! Independent of file systems: callers fill its structs. Text from an image or a trace is data
//! here, whatever it contains; it is escaped where it is put into HTML or JavaScript.
//!
//! - [`table`]: figures side by side
//! - [`reads`]: requests in order, with their files
//! - [`disk`]: the contents of a disk
//! - [`grid`]: a disk divided into rows of cells; `fold`: rows without content
//! - [`heat`]: figures over two keys as coloured fields
//! - [`strip`]: a line that shows which parts of a whole have a property
//! - [`chunk_map`]: the chunks of an image, as an HTML page
//! - [`terminal`]: the map as text
//! - [`page`]: the map as one HTML page
//! - [`bootchart`]: processes and the disk over time
//! - [`bars`]: figures as dots, with marks for published ones
//! - [`curves`]: figures as curves over a run
//! - [`seekplot`]: locations and times of requests; [`axis`]: round numbers
//! - [`sections`]: one HTML page of such parts

pub mod axis;
pub mod bars;
pub mod bootchart;
pub mod chunk_map;
pub mod curves;
pub mod disk;
mod fold;
pub mod grid;
pub mod heat;
pub mod page;
pub mod reads;
pub mod sections;
pub mod seekplot;
pub mod strip;
pub mod table;
pub mod terminal;
