//! A command of the user, as shell text and as words.

/// A command of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Text for a shell.
    Text(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

impl Command {
    /// Returns the command of these words: a single word is text for a shell.
    #[must_use]
    pub fn new(words: Vec<String>) -> Self {
        match words.as_slice() {
            [text] => Self::Text(text.clone()),
            _ => Self::Words(words),
        }
    }

    /// Returns shell text that runs the command.
    #[must_use]
    pub fn shell(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Words(words) => quoted(words),
        }
    }

    /// Returns the words of a program that runs the command, where there may be no shell.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Text(text) => quoted(&["/bin/sh".to_owned(), "-c".to_owned(), text.clone()]),
            Self::Words(words) => quoted(words),
        }
    }

    /// Returns the command for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Words(words) => words.join(" "),
        }
    }
}

/// Returns words that a shell takes as they are.
#[must_use]
pub fn quoted(words: &[String]) -> String {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        let words =
            |words: &[&str]| Command::new(words.iter().map(|it| (*it).into()).collect::<Vec<_>>());
        assert_eq!(words(&["ping $VRNIC_PEER"]).shell(), "ping $VRNIC_PEER");
        assert_eq!(words(&["echo", "it's", "a b"]).shell(), r"'echo' 'it'\''s' 'a b'");
        assert_eq!(words(&["it's"]).words(), r"'/bin/sh' '-c' 'it'\''s'");
        assert_eq!(words(&["echo", "a b"]).words(), "'echo' 'a b'");
    }
}
