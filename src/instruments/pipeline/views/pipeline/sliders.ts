import { formatBytes, timeWords } from '../../../../charts';
import type { Control } from '../../../../views/shared/control';
import type { Translate } from '../../../../views/shared/translate';

/** How a number of a plan is changed. */
export interface ISlider {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly scale: 'log' | 'whole';
  readonly say: (value: number) => string;
  /** What the option is at the left end of a logarithmic slider; 0 unless told. */
  readonly none?: null;
}

/**
 * The sliders of a plan, in order: those that are not measured, or were changed, say so by what they show.
 *
 * @param values - What each stands at, set or not.
 */
export function sliderControls<S extends string>(
  sliders: Readonly<Record<S, ISlider>>,
  options: Readonly<Record<S, unknown>>,
  values: Readonly<Record<S, number>>,
  choose: (options: Partial<Record<S, number | null>>) => void,
  t: Translate
): Control[] {
  return (Object.keys(sliders) as S[]).map(id => {
    const { label, say, none, ...scale } = sliders[id];
    const value = values[id];
    return {
      kind: 'slider',
      id,
      label,
      value,
      ...scale,
      text: say(value),
      title: options[id] === null ? t('As measured, or the usual. Drag to change it') : '',
      change: chosen =>
        choose({ [id]: chosen === 0 && none === null ? null : chosen } as Partial<Record<S, number | null>>)
    };
  });
}

/** The settings that somebody changed: what takes them back puts them to these. */
export function changedOf<S extends string>(
  names: readonly S[],
  options: Readonly<Record<S, unknown>>,
  defaults: Readonly<Record<string, unknown>>
): Partial<Record<S, unknown>> {
  return Object.fromEntries(
    names.filter(name => options[name] !== defaults[name]).map(name => [name, defaults[name]])
  ) as Partial<Record<S, unknown>>;
}

/** A slider of a time in ms. */
export const timeSlider = (label: string): ISlider => ({
  label,
  least: 0.01,
  most: 10_000,
  scale: 'log',
  say: timeWords
});

/** A slider of MB. */
export const sizeSlider = (label: string): ISlider => ({
  label,
  least: 0.01,
  most: 100_000,
  scale: 'log',
  say: value => formatBytes(value * 1e6)
});
