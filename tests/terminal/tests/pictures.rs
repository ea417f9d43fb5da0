//! What pictures show, and when: of escape sequences that programs write, and of the recordings in
//! docs/pictures.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use vrnic_terminal::recording::{Header, Output, Recording};
use vrnic_terminal::svg::draw;

/// Bytes that a picture may have.
const PICTURE_MAX: usize = 150_000;

/// A picture as a browser reads it.
#[derive(Default)]
struct Picture {
    /// The text of each row in `defs`.
    rows: HashMap<String, String>,
    /// The rows that are shown, and their places.
    uses: Vec<(f64, String)>,
    /// Distances by which the rows are moved, and the parts of the whole time at which that begins.
    moves: Vec<(f64, f64)>,
    /// The whole time in seconds; 0 if nothing moves.
    length: f64,
    /// Height of the window.
    height: f64,
    /// Values of the attribute `style`.
    styles: Vec<String>,
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = element.attributes().map(|it| it.expect("attributes are well formed"));
    let mut found = found.filter(|it| it.key.as_ref() == name.as_bytes());
    found.next().map(|it| String::from_utf8(it.value.into_owned()).expect("text"))
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"))
}

impl Picture {
    /// Reads a picture, which must be well formed.
    fn read(svg: &str) -> Self {
        let mut picture = Self::default();
        let mut reader = Reader::from_str(svg);
        reader.config_mut().check_end_names = true;
        let (mut row, mut inside) = (String::new(), Vec::new());
        loop {
            match reader.read_event().expect("well-formed XML") {
                Event::Start(element) => {
                    let name = String::from_utf8(element.name().as_ref().to_vec()).expect("text");
                    row = attribute(&element, "id").unwrap_or(row);
                    picture.element(&name, &element);
                    inside.push(name);
                }
                Event::Empty(element) => {
                    let name = String::from_utf8(element.name().as_ref().to_vec()).expect("text");
                    picture.element(&name, &element);
                }
                Event::End(_) => drop(inside.pop()),
                Event::Text(text) => {
                    let text = text.decode().expect("text").into_owned();
                    picture.text(inside.last().map_or("", String::as_str), &row, &text);
                }
                Event::GeneralRef(name) if inside.last().is_some_and(|it| it == "text") => {
                    let name = name.decode().expect("a name");
                    let text = quick_xml::escape::resolve_predefined_entity(&name);
                    picture.text("text", &row, text.expect("a known name"));
                }
                Event::Eof => break,
                _ => {}
            }
        }
        assert!(inside.is_empty(), "elements without an end: {inside:?}");
        picture
    }

    fn element(&mut self, name: &str, element: &BytesStart<'_>) {
        self.styles.extend(attribute(element, "style"));
        match name {
            "use" => {
                let place = number(&attribute(element, "y").expect("a place"));
                let row = attribute(element, "href").expect("a row");
                self.uses.push((place, row.trim_start_matches('#').to_owned()));
            }
            // The last one is the window.
            "svg" => self.height = number(&attribute(element, "height").expect("a height")),
            _ => {}
        }
    }

    fn text(&mut self, element: &str, row: &str, text: &str) {
        match element {
            "text" => self.rows.entry(row.to_owned()).or_default().push_str(text),
            "style" => {
                for line in text.lines() {
                    if let Some((percent, way)) = line.split_once("%{transform:translateY(") {
                        let way = way.trim_end_matches("px)}");
                        self.moves.push((number(percent) / 100.0, number(way)));
                    } else if let Some(length) = line.strip_prefix(".play{animation:play ") {
                        self.length = number(length.split('s').next().unwrap_or_default());
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns what is in the window after so many seconds.
    fn at(&self, seconds: f64) -> String {
        let before = self.moves.iter().take_while(|(part, _)| part * self.length <= seconds);
        let moved = before.last().map_or(0.0, |(_, way)| *way);
        let places = self.uses.iter().map(|(place, row)| (place + moved, row));
        let shown = places.filter(|(place, _)| (0.0..self.height).contains(place));
        shown.map(|(_, row)| format!("{}\n", self.rows[row])).collect()
    }
}

fn recording(outputs: &[(u64, &str)]) -> Recording {
    let header = Header {
        version: 2,
        width: 40,
        height: 6,
        command: "program <file>".into(),
        idle_time_limit: 2.0,
        still: false,
    };
    let outputs = outputs.iter().map(|&(time, text)| Output { time, text: text.into() });
    Recording { header, outputs: outputs.collect() }
}

/// Returns the picture of a recording that was written to a file and read again.
fn picture(recording: &Recording) -> Picture {
    let text = recording.write().expect("a file");
    let read = Recording::read(&text).expect("its recording");
    assert_eq!(&read, recording, "the file has something else:\n{text}");
    Picture::read(&draw(recording).expect("a picture"))
}

#[test]
fn each_screen_is_shown_at_its_time() {
    let shown = picture(&recording(&[
        (500, "one\r\n"),
        (550, "two\r\n"),
        (1500, "\x1b[Athree\x1b[K\r\n"),
        // A pause of more than two seconds is shortened to two.
        (60_000, "\x1b[2J\x1b[HFour & \"five\" <six>"),
    ]));
    assert_eq!(shown.at(0.0), "$ program <file>\n");
    assert_eq!(shown.at(1.49), "$ program <file>\n");
    assert_eq!(shown.at(1.51), "$ program <file>\none\ntwo\n");
    assert_eq!(shown.at(2.49), "$ program <file>\none\ntwo\n");
    assert_eq!(shown.at(2.51), "$ program <file>\none\nthree\n");
    assert_eq!(shown.at(4.49), "$ program <file>\none\nthree\n");
    assert_eq!(shown.at(4.51), "Four & \"five\" <six>\n");
    assert!((shown.length - 9.5).abs() < 0.001, "the picture ends after {} s", shown.length);
}

#[test]
fn rows_above_the_screen_are_gone_and_frames_are_kept() {
    let lines: String = (1..=9).map(|line| format!("line {line}\r\n")).collect();
    let shown = picture(&recording(&[(0, &lines), (900, "┌─ µs ─┐")]));
    assert_eq!(shown.at(1.1), "line 5\nline 6\nline 7\nline 8\nline 9\n");
    assert_eq!(shown.at(1.95), "line 5\nline 6\nline 7\nline 8\nline 9\n┌─ µs ─┐\n");
}

#[test]
fn colours_and_weights_are_styles() {
    let shown = picture(&recording(&[(
        0,
        "\x1b[1;31mred\x1b[0m plain \x1b[2;4mlow\x1b[0m\x1b[7m inv \x1b[0m",
    )]));
    assert_eq!(shown.at(1.1), "$ program <file>\nredplainlow inv \n");
    let styles =
        ["fill:#e06c75;font-weight:bold", "opacity:.6;text-decoration:underline", "fill:#1b2129"];
    assert_eq!(shown.styles, styles);
}

/// Blanks would have another width in another font.
#[test]
fn columns_keep_their_places() {
    let svg =
        draw(&recording(&[(0, "name   a b\r\n\x1b[4munder  line\x1b[0m")])).expect("a picture");
    let texts: Vec<_> =
        svg.split("<text ").skip(1).map(|text| text.split("</text>").next()).collect();
    for (x, width, text) in
        [("0.0", "33.6", "name"), ("58.8", "25.2", "a b"), ("0.0", "92.4", "under  line")]
    {
        let begin = format!("x=\"{x}\" y=\"13.5\" textLength=\"{width}\"");
        let found = texts
            .iter()
            .flatten()
            .any(|it| it.starts_with(&begin) && it.ends_with(&format!(">{text}")));
        assert!(found, "'{text}' is not at {x}, {width} wide:\n{svg}");
    }
}

#[test]
fn a_still_has_the_last_screen_and_no_empty_rows_below_it() {
    let mut recording = recording(&[(0, "one\r\n"), (5000, "two\r\n")]);
    recording.header.still = true;
    let shown = picture(&recording);
    assert_eq!(shown.at(0.0), "$ program <file>\none\ntwo\n");
    assert_eq!((shown.length, shown.moves.len()), (0.0, 0));
    assert!((shown.height - 3.0 * 18.0).abs() < 0.001, "the height is {}", shown.height);
}

#[test]
fn files_that_are_no_recordings_are_refused_with_their_line() {
    let header = recording(&[]).write().expect("a header");
    let with = |line: &str| format!("{header}{line}\n");
    for (text, part) in [
        (String::new(), "the recording is empty"),
        ("{}".to_owned(), "the first line is no header"),
        (header.replace("\"version\":2", "\"version\":3"), "the version 3, not 2"),
        (header.replace("\"width\":40", "\"width\":0"), "the size 0"),
        (header.replace("2.0", "1e300"), "the pause of"),
        (with("[1,2]"), "line 2 is no output"),
        (with("[1, \"i\", \"q\"]"), "of the kind 'i'"),
        (with("[-1, \"o\", \"q\"]"), "has the time -1"),
        (with("[2, \"o\", \"q\"]\n[1, \"o\", \"q\"]"), "line 3 is earlier"),
    ] {
        let error = Recording::read(&text).err().unwrap_or_else(|| panic!("was read: {text}"));
        assert!(format!("{error:#}").contains(part), "{text}: {error:#}");
    }
}

/// Returns the recordings of the documents.
fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let files = fs::read_dir(folder).expect("docs/pictures").map(|file| file.expect("a file"));
    let mut files: Vec<_> = files.map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|of| of == "cast"));
    files.sort();
    assert!(files.len() >= 4, "docs/pictures has only {files:?}");
    files
}

/// `VRNIC_WRITE_PICTURES=1` writes the pictures of changed recordings.
#[test]
fn pictures_of_documents_are_those_of_their_recordings() {
    for file in recordings() {
        let recording = Recording::read(&fs::read_to_string(&file).expect("text"));
        let svg = draw(&recording.expect("a recording")).expect("a picture");
        let picture = file.with_extension("svg");
        if std::env::var_os("VRNIC_WRITE_PICTURES").is_some() {
            fs::write(&picture, &svg).expect("the picture is written");
        }
        let written = fs::read_to_string(&picture).unwrap_or_default();
        assert!(written == svg, "{} differs from its recording", picture.display());
        assert!(svg.len() < PICTURE_MAX, "{} has {} bytes", picture.display(), svg.len());
        assert!(!Picture::read(&svg).rows.is_empty(), "{} is empty", picture.display());
    }
}

/// Recordings are of any machine: they have no paths but those below /run.
#[test]
fn recordings_have_no_paths_of_the_machine() {
    for file in recordings() {
        let recording = Recording::read(&fs::read_to_string(&file).expect("text")).expect("read");
        let texts = recording.outputs.iter().map(|output| output.text.as_str());
        for text in texts.chain([recording.header.command.as_str()]) {
            let mut words = text.split(|it: char| it.is_whitespace() || "'\"=:,(".contains(it));
            let is_path = |word: &&str| word.starts_with('/') && word.len() > 1;
            let path = words.find(|word| is_path(word) && !word.starts_with("/run/"));
            assert_eq!(path, None, "{} has a path", file.display());
        }
    }
}
