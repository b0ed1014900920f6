#!/usr/bin/env bash
# The gate of action.yml: annotations, the step's summary, one comment of the pull request. Its status
# is that of `gpuprof gate`: 3 for a failed gate. A comment that cannot be written fails nothing.
set -euo pipefail
shopt -s nullglob

# Patterns are split and expanded here.
# shellcheck disable=SC2206
recordings=($RECORDINGS)
if [[ ${#recordings[@]} -eq 0 ]]; then
    echo "::error::no recording matches $RECORDINGS"
    exit 1
fi
marker="<!-- gpuprof gate $BASELINE -->"
result=$(mktemp)
trap 'rm -f "$result"' EXIT
echo "$marker" >"$result"

status=0
"$GPUPROF" gate --format markdown "$BASELINE" "${recordings[@]}" >>"$result" || status=$?
if [[ $status -ne 0 && $status -ne 3 ]]; then
    exit "$status"
fi
"$GPUPROF" gate --format github "$BASELINE" "${recordings[@]}" || [[ $? -eq 3 ]]
cat "$result" >>"$GITHUB_STEP_SUMMARY"

comment() {
    local comments="repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments" known
    known=$(gh api "$comments" --paginate --jq ".[] | select(.body | startswith(\"$marker\")) | .id")
    known=${known%%$'\n'*}
    if [[ -n $known ]]; then
        gh api -X PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$known" -F "body=@$result" >/dev/null
    else
        gh api -X POST "$comments" -F "body=@$result" >/dev/null
    fi
}
if [[ -n ${PULL_REQUEST:-} && -n ${GH_TOKEN:-} ]] && ! comment; then
    echo "::warning::the comment of the gate could not be written: the token needs pull-requests: write"
fi
exit "$status"
