import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import { omissionWords } from '../../../../views/shared/describe';
import { formatInteger, formatNumber } from '../../../../charts';
import { type IViewEnvironment, Pictured } from '../../../../views/shared/view-model';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { ITip } from '../../../../views/shared/table';
import type { Translate } from '../../../../views/shared/translate';
import type { IEffects, IEffect } from '../../store/effects';
import type { IGeneration } from '../../store/generations';
import { promptWords } from '../shared/generation-view';
import { positionName, type TokenTexts } from '../shared/token-axis';
import { quoted } from '../../../../views/kits/text/token-words';
import { emptyState, type IState } from '../../../../views/shared/states';
import type {
  GenerateRequest,
  Perturb,
  PerturbSite,
  SiteInfo
} from '../../../../protocol/messages.generated';
import { own } from '../../../../protocol/records';
import { pythonCall } from '../../../../views/code';
import { perturbText } from '../../../../views/shared/perturb-text';

/** Say what was perturbed: `MLP output: Additive Gaussian noise, layers 2-3; seed 7`. Empty if unknown. */
export function perturbationWords(
  request: GenerateRequest | null,
  sites: readonly SiteInfo[],
  t: Translate
): string {
  const { perturb } = request ?? {};
  if (!perturb) {
    return '';
  }
  // It lasts as long as the generation, whatever phases it names.
  const always = Object.fromEntries(
    Object.entries(perturb.sites).map(([name, { phases: _, ...site }]) => [name, site])
  );
  const words = perturbText({ ...perturb, sites: always }, sites);
  return perturb.seed ? t('%1; seed %2', words, formatInteger(perturb.seed)) : words;
}

export type SweepOver = NonNullable<GenerateRequest['sweep']>['over'];

/** Name a setting of a sweep: `coefficient 0.1`, `layers 0-3`. */
export function settingWords(over: SweepOver | null, setting: string, value: number, t: Translate): string {
  const text = Number.isFinite(value) ? formatNumber(value) : setting;
  switch (over) {
    case 'coefficient':
      return t('coefficient %1', text);
    case 'layers':
      return t('layers %1', text);
    case 'site':
      return t('site %1', text);
    case null:
      return text;
  }
}

/** A request as the Python call that makes it. What is at its default is left out. */
export function requestCode(request: GenerateRequest): string {
  const { prompts, tokens, perturb, sweep, ...others } = request;
  const named = Object.entries(others).filter(([name, value]) => !isDefault(name, value));
  return pythonCall(
    'run.generate',
    [prompts.length === 1 ? prompts[0] : prompts],
    [
      ...(tokens === undefined || tokens === DEFAULTS.tokens ? [] : [['tokens', tokens] as const]),
      ...named,
      ...(perturb ? [['perturb', bySite(perturb)] as const] : []),
      ...(sweep ? [['sweep', { [sweep.over]: sweep.values }] as const] : [])
    ]
  );
}

/** The sites alone where nothing else is said, as a person writes it. */
const bySite = ({ sites, seed }: Perturb): unknown => (seed ? { sites, seed } : sites);

/** The request of one point of a sweep, with its perturbation as set there. Null if that is unknown. */
export function pointRequest(
  request: GenerateRequest | null,
  setting: string,
  value: number
): GenerateRequest | null {
  const { perturb, sweep, ...others } = request ?? { prompts: [] };
  const [entry] = Object.entries(perturb?.sites ?? {});
  if (!request || !perturb || !sweep || !entry) {
    return null;
  }
  const [name, site] = entry;
  const [next, changed]: [string, PerturbSite] =
    sweep.over === 'site'
      ? [setting, site]
      : sweep.over === 'layers'
        ? [name, { ...site, layers: setting }]
        : [name, { ...site, kind: { ...site.kind, params: strength(site.kind, value) } }];
  return { ...others, perturb: { ...perturb, sites: { [next]: changed } } };
}

/** The parameters of a kind with another strength, which of a bit flip is its rate. */
function strength(
  { name, params }: PerturbSite['kind'],
  value: number
): NonNullable<PerturbSite['kind']['params']> {
  const has = params ?? {};
  const isRate = own(has, 'rate') !== undefined || name === 'bit_flip';
  return { ...has, [isRate ? 'rate' : 'coefficient']: value };
}

/** Numbers of a request that says nothing of them. */
export const DEFAULTS = {
  tokens: 64,
  temperature: 1,
  top_k: 0,
  top_p: 1,
  seed: 0,
  samples: 1,
  candidates: 20,
  lens: 0
};

function isDefault(name: string, value: unknown): boolean {
  const isEmpty = Array.isArray(value) && value.length === 0 && name === 'stop';
  return (
    value === null ||
    value === undefined ||
    value === false ||
    isEmpty ||
    own<unknown>(DEFAULTS, name) === value
  );
}

type Kind = Required<EffectsOptions>['kind'];

/** What writes a text under a perturbation. */
export const SNIPPETS: Readonly<Record<Kind, string>> = {
  positions: 'lab.generate("…", perturb=megalens.Noise1(0.1))',
  layers: 'lab.generate("…", perturb=megalens.Noise1(0.1))',
  sweep: 'lab.generate("…", perturb=megalens.Noise1(0.1), sweep={"coefficient": [0.01, 0.1, 1.0]})'
};

export interface IEffectsRead {
  readonly generation: IGeneration;
  readonly effects: IEffects;
  /** Number of the clean control; NaN where that is not known. */
  readonly control: number;
}

/** One picture of the effects of a generation, and what is said beside it. */
export abstract class EffectsPane extends Pictured {
  constructor(
    protected readonly source: IRunSource,
    protected readonly env: IViewEnvironment<EffectsOptions>
  ) {
    super();
  }

  abstract get insight(): IMark | null;
  abstract pinned(): IMark | null;
  clicked?(mark: IMark): void;
  abstract load(read: IEffectsRead, signal: AbortSignal): Promise<Loaded>;

  /** Name the picture: `Effects of a perturbation, generation 3, “The capital of”`. */
  protected title({ generation }: IEffectsRead): string {
    const { options, t } = this.env;
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
  protected caption({ generation, effects, control }: IEffectsRead, more: readonly string[]): string[] {
    const { t } = this.env;
    const words = perturbationWords(generation.request, this.source.hello?.sites ?? [], t);
    return [
      ...(words === '' ? [] : [t('Perturbed: %1.', words)]),
      ...(control > 0 ? [t('Clean control: generation %1.', formatInteger(control))] : []),
      ...more,
      ...(generation.state === 'failed' ? [t('It failed: %1', generation.message)] : []),
      ...(generation.state === 'cancelled' ? [t('It was cancelled.')] : []),
      ...omissionWords({ evictedRows: effects.evictedRows }, t)
    ];
  }

  /** Why there is nothing to draw of effects that are here: they are of another kind, or another sequence. */
  protected otherEffects({ generation }: IEffectsRead, there: readonly Kind[]): IState {
    const { actions, choose, options, t } = this.env;
    const [other] = there;
    const number = formatInteger(generation.generation);
    const show: Readonly<Record<Kind, string>> = {
      positions: t('Show positions'),
      layers: t('Show layers'),
      sweep: t('Show the sweep')
    };
    if (other !== undefined) {
      const sentences: Readonly<Record<Kind, string>> = {
        positions: t('Generation %1 is not compared by position: it is a sweep.', number),
        layers: t('Generation %1 is not compared by layer and position.', number),
        sweep: t('Generation %1 is no sweep.', number)
      };
      return {
        kind: 'empty',
        sentence: sentences[options.kind],
        action: { label: show[other], run: () => choose({ kind: other }) },
        ...(options.kind === 'sweep'
          ? {
              code: SNIPPETS.sweep,
              more: [{ label: t('Copy this line'), run: () => actions.copy(SNIPPETS.sweep) }]
            }
          : {})
      };
    }
    return emptyState(
      t('Generation %1 has no sequence %2 here.', number, formatInteger(options.sequence)),
      t('Show sequence 0'),
      () => choose({ sequence: 0 })
    );
  }

  /** Why there are no distances to draw of effects that are here. */
  protected noDistances(): IState {
    const { choose, t } = this.env;
    return emptyState(t('No hidden states were compared.'), t('Show the KL divergence'), () =>
      choose({ measure: 'kl' })
    );
  }
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
