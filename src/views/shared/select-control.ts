import type { Control } from './control';

/** One choice of a select: its value, the word that a person reads, and whether it can be chosen now. */
export interface IChoice<V extends string | number> {
  readonly value: V;
  readonly text: string;
  readonly disabled?: boolean;
  /** Why it cannot be chosen, or what it is. */
  readonly title?: string;
}

/**
 * A control that chooses one of several values.
 *
 * @param choices As a list, or as the word of each value.
 * @param choose Hears only values that were offered.
 */
export function selectControl<V extends string | number>(
  id: string,
  label: string,
  value: V,
  choices: readonly IChoice<V>[] | Readonly<Record<V, string>>,
  choose: (value: V) => void
): Control {
  const listed = isList(choices)
    ? choices
    : Object.entries<string>(choices).map(([each, text]) => ({ value: each as V, text }));
  return {
    kind: 'select',
    id,
    label,
    value: String(value),
    options: listed.map(choice => ({ ...choice, value: String(choice.value) })),
    change: text => {
      const chosen = listed.find(choice => String(choice.value) === text);
      if (chosen) {
        choose(chosen.value);
      }
    }
  };
}

function isList<T>(choices: readonly T[] | object): choices is readonly T[] {
  return Array.isArray(choices);
}
