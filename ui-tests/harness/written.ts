import { attentionRow } from '../../src/instruments/generation/store/__tests__/written-text';
import { textRows } from '../../src/instruments/generation/views/__tests__/generated-text';
import { projectedRun } from '../../src/instruments/generation/views/__tests__/projected-run';
import { RunLink } from '../../src/store/run-link';
import type { IRunSource } from '../../src/store/source';

const WORDS = 'The quick brown fox jumps over the lazy dog and then runs home again .'.split(/(?= )/);
const LAYERS = [0, 1, 2, 3];

/** A run whose model wrote a text of so many tokens, read its hidden states and attention, and was asked for every layer's guess. */
export function writtenRun(count = 40): IRunSource {
  const pieces = Array.from({ length: count }, (_, at) => WORDS[at % WORDS.length] ?? '');
  const run = projectedRun({ prompts: [pieces.join('')], generation: 1, step: 1 });
  run.generated(
    1,
    { prompts: ['The quick'], tokens: count - 4, attention: true, lens: 2 },
    { tokens: count - 4 }
  );
  const rows = textRows(
    pieces.map((piece, at): [string, number] => [piece, 1 / (1 + (at % 9))]),
    4,
    { step: 1, tensor_step: 1 }
  );
  const texts = [' a', ' it', ' something'];
  run.written.set(
    'tokens',
    rows.map((row, at) => ({
      ...row,
      tensor_offset: at,
      candidate_ids: [7, 8, 9],
      candidate_texts: texts,
      candidate_logits: [5, 4, 1],
      candidate_probabilities: [0.00512, 0.00251, 0.000123],
      candidate_sampled: [0.00755, 0.00333, 0.000456]
    }))
  );
  for (const layer of LAYERS) {
    const pass = { step: 1, queries: count, keys: count, layer, heads: 4, padding: [0] };
    const weight = (head: number, query: number, key: number): number =>
      Math.exp(-(query - key) / (2 + 3 * head));
    run.add(
      attentionRow(pass, (_, head, query, key) => {
        const all = Array.from({ length: query + 1 }, (_each, at) => weight(head, query, at));
        return weight(head, query, key) / all.reduce((sum, each) => sum + each, 0);
      })
    );
  }
  run.write(
    'lens',
    ...pieces.flatMap((piece, position) =>
      LAYERS.map(layer => ({
        generation: 1,
        position,
        layer,
        ids: [1, 2],
        texts: [piece, ' cat'],
        probabilities: [0.2 + 0.2 * layer, 0.05],
        token: 1,
        token_rank: 3 - layer,
        token_probability: 0.1,
        entropy: 4 - layer
      }))
    )
  );
  return Object.assign(run, { link: new RunLink() });
}
