//! Numbers that are compared with a limit. What is beyond the limit and cannot be mended yet is
//! listed with its present number, which may shrink, but not grow.

/// A thing, and the number that was found for it.
pub(crate) type Found = (String, usize);

/// Returns what is wrong with the numbers: numbers beyond the limit that are not listed, numbers
/// that have grown, and entries of the list that are too high or no longer needed.
pub(crate) fn compare(found: &[Found], limit: usize, listed: &[(&str, usize)]) -> Vec<String> {
    let beyond = found.iter().filter(|(_, number)| *number > limit);
    let wrong = beyond.clone().filter_map(|(name, number)| {
        let entry = listed.iter().find(|(listed, _)| listed == name);
        let most = entry.map_or(limit, |(_, most)| *most);
        (*number > most).then(|| format!("{name}: {number}, and at most {most} may be"))
    });
    let high = listed.iter().filter_map(|(name, most)| {
        let (_, number) = beyond.clone().find(|(other, _)| other == name)?;
        (number < most).then(|| format!("{name}: {number}; lower the entry, which is {most}"))
    });
    let unneeded =
        listed.iter().filter(|(name, _)| !beyond.clone().any(|(other, _)| other == name));
    let unneeded = unneeded.map(|(name, _)| format!("{name}: remove the entry, nothing needs it"));
    wrong.chain(high).chain(unneeded).collect()
}

#[test]
fn only_listed_numbers_are_beyond_the_limit() {
    let found = |numbers: &[(&str, usize)]| {
        let found = numbers.iter().map(|(name, number)| ((*name).to_owned(), *number));
        found.collect::<Vec<_>>()
    };
    let listed = [("a", 7)];
    assert!(compare(&found(&[("a", 7), ("b", 5)]), 5, &listed).is_empty());
    let smaller = compare(&found(&[("a", 6)]), 5, &listed);
    assert_eq!(smaller, ["a: 6; lower the entry, which is 7"]);
    let grown = compare(&found(&[("a", 8), ("b", 6)]), 5, &listed);
    assert_eq!(grown, ["a: 8, and at most 7 may be", "b: 6, and at most 5 may be"]);
    for mended in [&[("a", 5)][..], &[]] {
        let wrong = compare(&found(mended), 5, &listed);
        assert_eq!(wrong, ["a: remove the entry, nothing needs it"]);
    }
}
