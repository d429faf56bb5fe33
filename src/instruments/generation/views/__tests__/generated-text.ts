import { HELLO } from '../../../../store/__tests__/memory-run';
import { WrittenRun } from '../../../../store/__tests__/written-run';

/** A row of the stream `tokens`; `probability` 0.5 unless told. */
export function tokenRow(row: Record<string, unknown>): Record<string, unknown> {
  const { position = 0, probability = 0.5, piece = 'x' } = row;
  const isFirst = position === 0;
  return {
    generation: 1,
    sequence: 0,
    step: 10 + Number(position),
    kind: 'generated',
    id: 100 + Number(position),
    text: piece,
    piece,
    logit: isFirst ? NaN : 2,
    sampled_probability: row['kind'] === 'prompt' ? NaN : probability,
    rank: isFirst ? -1 : 0,
    entropy: isFirst ? NaN : 1.5,
    tensor_step: 10,
    ...row,
    position,
    probability: isFirst ? NaN : probability
  };
}

/** Rows of a text: what it holds and how probable each token of it was. The first `prompt` are tokens of the prompt. */
export function textRows(
  pieces: readonly (readonly [string, number?])[],
  prompt = 2,
  more: Record<string, unknown> = {}
): Record<string, unknown>[] {
  return pieces.map(([piece, probability], position) =>
    tokenRow({
      piece,
      position,
      kind: position < prompt ? 'prompt' : 'generated',
      ...(probability === undefined ? {} : { probability }),
      ...more
    })
  );
}

/** A run in which one text was written: `Once upon a time`, then a newline and ` the end`; ` the` was hardly to be expected. */
export function textRun(): WrittenRun {
  const run = new WrittenRun(HELLO);
  run.generated(1, { prompts: ['Once upon'], tokens: 5 }, { tokens: 5, seconds: 0.5 });
  const rows = textRows([
    ['Once'],
    [' upon', 0.9],
    [' a', 0.8],
    [' time', 0.95],
    ['\n', 0.25],
    [' the', 0.0018],
    [' end', 0.5]
  ]);
  Object.assign(rows[5] as object, {
    rank: 153,
    candidate_ids: [7, 8],
    candidate_texts: [' a', ' it'],
    candidate_logits: [5, 4],
    candidate_probabilities: [0.5, 0.25],
    candidate_sampled: [0.75, 0]
  });
  run.write('tokens', ...rows);
  return run;
}
