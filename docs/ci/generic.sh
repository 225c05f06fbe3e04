#!/usr/bin/env bash
# Grade one folder of submissions from any CI or cron job.
#
#   COURSE=/srv/course  INBOX=/srv/inbox  OUT=/srv/marks  docs/ci/generic.sh
#
# COURSE is the instructor's checkout at a pinned commit, with its environment made (make grade
# makes it). POLICY and ROSTER name files, EXERCISE the only one to be judged again. Interrupted, it
# goes on where it was; submissions that have not changed are not graded again. Exit code 0: every
# submission was graded, whatever its marks.
set -euo pipefail
: "${COURSE:?the instructor\'s checkout}" "${INBOX:?submissions}" "${OUT:?where marks go}"
cd "$COURSE"
git diff --quiet HEAD -- 'course_*' notebooks || { echo "$COURSE has local changes" >&2; exit 1; }
.venv/bin/python -m course_lib build --check
exec .venv/bin/python -m course_lib grade "$INBOX" --out "$OUT" ${POLICY:+--policy "$POLICY"} \
  ${ROSTER:+--roster "$ROSTER"} ${EXERCISE:+--exercise "$EXERCISE"} --jobs "${JOBS:-2}"
