import { translatedLater } from '../../protocol/texts';
import type { Translate } from './translate';

/**
 * Words that a person may not know, with what each means: one word for each thing, in every view and in the
 * panel. A control whose id is a word here has its meaning as its help; `docs/design-language.md` has the
 * same table.
 */
export const GLOSSARY = translatedLater({
  flag: ['Flag', 'A tensor of the model that can be traced, such as the output of an MLP'],
  part: ['Part', 'One of several tensors that a flag has, such as queries, keys and values'],
  layers: ['Layers', 'Layers are counted from 0; the embedding before them is none'],
  heads: ['Heads', 'Attention heads of a layer, counted from 0'],
  rank: ['Rank', 'A process of the training, counted from 0'],
  stage: ['Stages', 'Parts of a pipeline, counted from 0'],
  phase: ['Phase', 'What the model does: it is trained, evaluated, or generates text'],
  pass: ['Pass', 'Forward: the values. Backward: their gradients'],
  sample: ['Sample', 'A sequence of the batch, counted from 0'],
  generation: ['Generation', 'A text that was asked for, or several in one batch, counted from 1'],
  outliers: ['Range', 'Which values the axis or the colours cover'],
  compressor: ['Compressor', 'What is kept of a tensor'],
  NoOp: ['No compression', 'Every value is kept; NoOp() in code'],
  Tile: ['Tile', 'Stretches of neighbouring features, of which one number each is kept; Tile() in code'],
  Peaks: ['Peaks', 'Of each block of queries and keys the largest probability is kept; Peaks() in code'],
  Empty: ['Counts only', 'No value is kept, only how many are not finite; Empty() in code'],
  Projection: ['Projection', 'How far each position lies along given vectors; Projection() in code'],
  Histogram: [
    'Histogram',
    'How many values lie in each of fixed bins, which add up over steps and ranks; Histogram() in code'
  ],
  probes: [
    'Probes',
    'Hooks on the model that read traced tensors: how many fired, of how many, in the last traced step'
  ],
  token_rank: [
    'Rank of a token',
    'How many tokens of the vocabulary were more probable: 0 is the most probable'
  ],
  alarm: ['Alarm', 'What a rule of the monitor found, at a step']
}) satisfies Readonly<Record<string, readonly [word: string, meaning: string]>>;

export type Term = keyof typeof GLOSSARY;

const isTerm = (id: string): id is Term => Object.hasOwn(GLOSSARY, id);

/** What a word means; empty where it needs no explanation. */
export function meaningOf(id: string, t: Translate): string {
  const [, meaning] = isTerm(id) ? GLOSSARY[id] : ['', ''];
  return meaning && t(meaning);
}
