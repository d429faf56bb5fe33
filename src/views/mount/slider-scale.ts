import type { Control } from '../shared/control';

/** Places of a slider whose numbers go by ratios; the first is 0. */
export const SLIDER_PLACES = 240;

type Scale = Pick<Extract<Control, { kind: 'slider' }>, 'least' | 'most' | 'scale'>;

/** The number at a place of a slider. */
export function sliderValue({ least, most, scale }: Scale, place: number): number {
  if (scale === 'whole') {
    return least + place;
  }
  return place <= 0
    ? 0
    : Number((least * (most / least) ** ((place - 1) / (SLIDER_PLACES - 1))).toPrecision(3));
}

/** The place of a number on a slider: the nearest where it has none of its own. */
export function sliderPlace({ least, most, scale, value }: Scale & { readonly value: number }): number {
  const held = Math.min(most, Math.max(least, value));
  if (scale === 'whole') {
    return Math.round(held - least);
  }
  return value <= 0
    ? 0
    : Math.round(1 + (Math.log(held / least) / Math.log(most / least)) * (SLIDER_PLACES - 1));
}
