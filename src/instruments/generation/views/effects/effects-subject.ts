import type { EffectsOptions } from '../../../../protocol/views.generated';
import type { IEffects } from '../../store/effects';
import type { IGeneration } from '../../store/generations';
import type { IRunSource } from '../../../../store/source';
import { omissionWords } from '../../../../views/shared/describe';
import { promptWords } from '../shared/generation-pick';
import { formatInteger } from '../../../../charts';
import { quoted } from '../shared/token-text';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import type { IMark, Loaded } from '../../../../views/shared/content';
import type { IPictured } from '../../../../views/shared/pictured';
import { perturbationWords } from './perturbation';

/** What was read of a generation under a perturbation. */
export interface IEffectsRead {
  readonly generation: IGeneration;
  readonly effects: IEffects;
  /** Number of the clean control; NaN where that is not known. */
  readonly control: number;
}

/** One way to draw effects. */
export interface IEffectsPane extends IPictured {
  readonly insight: IMark | null;
  pinned(): IMark | null;
  clicked?(mark: IMark): void;
  /** Shape what was read. */
  load(read: IEffectsRead, signal: AbortSignal): Promise<Loaded>;
}

/** Where a pane is. */
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
