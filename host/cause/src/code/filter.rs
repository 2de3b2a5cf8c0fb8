//! Filters.

use super::codes;

codes! {
    PATTERN = "SM0201" "A pattern of a filter is refused"
        means "Patterns are those of AWS Lambda's event filters: `data`, or a name of the metadata, with lists of values or of \
            operators such as `prefix` and `numeric`. The message names the place in the pattern and what is allowed there."
        kept "A start does not begin, so no record is dropped by a filter that says something else than was meant. A worker \
            that runs keeps the filter it has."
        next "Correct the pattern at that place. `shardmill check` tells of the next one, and `docs/configuration.md` has all \
            operators."
}
