import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { omissionWords } from '../../../../views/shared/describe';
import { formatInteger } from '../../../../charts';
import type { IViewEnvironment, IPictured } from '../../../../views/shared/view-model';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IEffects, IEffect } from '../../store/effects';
import type { IGeneration } from '../../store/generations';
import { promptWords } from '../shared/generation-view';
import { quoted } from '../shared/token-text';
import { positionName, type TokenTexts } from '../shared/token-axis';
import { perturbationWords } from './perturbation';

export interface IEffectsRead {
  readonly generation: IGeneration;
  readonly effects: IEffects;
  /** Number of the clean control; NaN where that is not known. */
  readonly control: number;
}

export interface IEffectsPane extends IPictured {
  readonly insight: IMark | null;
  pinned(): IMark | null;
  clicked?(mark: IMark): void;
  load(read: IEffectsRead, signal: AbortSignal): Promise<Loaded>;
}

export interface IEffectsSubject {
  readonly source: IRunSource;
  readonly env: IViewEnvironment<EffectsOptions>;
}

/** Name the picture: `Effects of a perturbation, generation 3, “The capital of”`. */
export function effectsTitle({ generation }: IEffectsRead, { env }: IEffectsSubject): string {
  const { options, t } = env;
  const isSweep = options.kind === 'sweep';
  const number = formatInteger(generation.generation);
  const prompt = promptWords(generation, isSweep ? 0 : options.sequence);
  return [
    isSweep
      ? t('Sweep of a perturbation, generation %1', number)
      : t('Effects of a perturbation, generation %1', number),
    ...(!isSweep && generation.sequences > 1 ? [t('sequence %1', formatInteger(options.sequence))] : []),
    ...(prompt === '' ? [] : [quoted(prompt)])
  ].join(', ');
}

/** Say what was perturbed and with what it is compared, how it ended, and what is lacking. */
export function effectsCaption(
  { generation, effects, control }: IEffectsRead,
  { source, env: { t } }: IEffectsSubject,
  more: readonly string[]
): string[] {
  const words = perturbationWords(generation.request, source.hello?.sites ?? [], t);
  return [
    ...(words === '' ? [] : [t('Perturbed: %1.', words)]),
    ...(control > 0 ? [t('Clean control: generation %1.', formatInteger(control))] : []),
    ...more,
    ...(generation.state === 'failed' ? [t('It failed: %1', generation.message)] : []),
    ...(generation.state === 'cancelled' ? [t('It was cancelled.')] : []),
    ...omissionWords({ evictedRows: effects.evictedRows }, t)
  ];
}

/** The clean text and the one that was written under the perturbation. */
export interface IComparedTexts {
  readonly clean: TokenTexts;
  readonly perturbed: TokenTexts;
  readonly divergence: number | null | undefined;
}

/** Name a position of the clean text, which both read. */
export const comparedName = ({ clean }: IComparedTexts, position: number, t: Translate): string =>
  positionName(position, clean, t);

/** What the two texts have after a position. */
export function nextLines(
  { clean, perturbed }: IComparedTexts,
  position: number,
  t: Translate
): ITip['lines'] {
  const [one, other] = [clean.get(position + 1), perturbed.get(position + 1)];
  return [
    ...(one === undefined ? [] : [{ name: t('clean text goes on'), value: quoted(one) }]),
    ...(other === undefined ? [] : [{ name: t('perturbed text goes on'), value: quoted(other) }])
  ];
}

/** Say where the texts part. */
export function divergenceWords({ clean, perturbed, divergence }: IComparedTexts, t: Translate): string {
  if (divergence === undefined) {
    return '';
  }
  if (divergence === null) {
    return t('The written texts are the same.');
  }
  const [one, other] = [clean.get(divergence), perturbed.get(divergence)];
  const where = formatInteger(divergence);
  return one === undefined || other === undefined
    ? t('The written texts part at position %1.', where)
    : t('The written texts part at position %1: %2, perturbed %3.', where, quoted(one), quoted(other));
}

/** The mark of the place at which the texts part, as rows of the charts. */
export function divergenceRows({ divergence }: IComparedTexts, color: string, t: Translate): object[] {
  return typeof divergence === 'number' ? [{ x: divergence, text: t('texts part'), color }] : [];
}

/** What a perturbation changed at one position. */
export interface IPositionEffect {
  /** Of the token that was read. */
  readonly position: number;
  /** Nats; NaN where it is not known. */
  readonly kl: number;
  /** Whether the most probable next token is another one; null where that is not known. */
  readonly isChanged: boolean | null;
  /** Relative distance of the hidden states by layer. */
  readonly distances: ReadonlyMap<number, number>;
}

/** What a perturbation changed of one sequence. */
export interface ISequenceEffects {
  /** By position. */
  readonly positions: readonly IPositionEffect[];
  /** Layers whose hidden states were compared, ascending. */
  readonly layers: readonly number[];
  /** First position at which the written texts differ; null if they do not, undefined if unknown. */
  readonly divergence: number | null | undefined;
}

/** Join the effects on a sequence, without those of a sweep's points; of duplicate rows the last counts. */
export function sequenceEffects({ rows }: IEffects, sequence: number): ISequenceEffects {
  const own = rows.filter(row => row.sequence === sequence && row.point < 0);
  const positions = new Map<number, { kl: number; changed: number; distances: Map<number, number> }>();
  let divergence: number | null | undefined;
  for (const row of own) {
    if (row.position < 0) {
      divergence = row.layer < 0 ? divergenceOf(row) : divergence;
      continue;
    }
    const at = positions.get(row.position) ?? { kl: NaN, changed: NaN, distances: new Map<number, number>() };
    positions.set(row.position, at);
    if (row.layer < 0) {
      [at.kl, at.changed] = [row.kl, row.changed];
    } else {
      at.distances.set(row.layer, row.distance);
    }
  }
  return {
    positions: [...positions]
      .sort(([a], [b]) => a - b)
      .map(([position, { kl, changed, distances }]) => ({
        position,
        kl,
        isChanged: Number.isNaN(changed) ? null : changed > 0,
        distances
      })),
    layers: layersOf(own),
    divergence
  };
}

/** Layers of rows, ascending. */
export function layersOf(rows: readonly IEffect[]): number[] {
  return [...new Set(rows.filter(({ layer }) => layer >= 0).map(({ layer }) => layer))].sort((a, b) => a - b);
}

/** First position at which a text differs; null where it does not. */
export function divergenceOf({ divergence }: Pick<IEffect, 'divergence'>): number | null {
  return divergence >= 0 ? divergence : null;
}
