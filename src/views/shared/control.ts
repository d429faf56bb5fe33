import { faultSentence, faultText } from './fault-text';
import type { IStateActions } from './states';
import type { Translate } from './translate';

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

const isList = <T>(choices: readonly T[] | object): choices is readonly T[] => Array.isArray(choices);

/** The toolbar of a view whose controls could not be made: a sentence, and the way out. */
export function faultControls(reason: unknown, actions: IStateActions, t: Translate): Control[] {
  const title = faultSentence(reason);
  const button = (id: string, text: string, change: () => void): Control => ({
    kind: 'toggle',
    id,
    text,
    title,
    pressed: false,
    change
  });
  return [
    { kind: 'name', id: 'fault', text: t('These settings could not be shown'), title },
    button('fault-reset', t('Reset'), () => actions.reset()),
    button('fault-copy', t('Copy details'), () => void actions.copy(faultText('toolbar', reason)))
  ];
}

/** A control of the toolbar. `id` tells it from the others and stays the same from update to update. */
export type Control =
  | { kind: 'name'; id: string; text: string; title?: string; color?: string | undefined }
  | {
      kind: 'select';
      id: string;
      label: string;
      value: string;
      options: readonly { value: string; text: string; disabled?: boolean; title?: string }[];
      change: (value: string) => void;
    }
  | {
      kind: 'text';
      id: string;
      label: string;
      value: string;
      suggestions: readonly string[];
      valid: (value: string) => boolean;
      /** What is wrong with a text while it is typed; it may be taken all the same. */
      why?: (value: string) => string | undefined;
      /** Spaces are part of the text; otherwise they are dropped. */
      spaced?: boolean;
      title?: string | undefined;
      /**
       * A control that chooses one of several values: a list, or the word of each value. `choose` gets only
       * values that were offered.
       */
      fault?: string | undefined;
      change: (value: string) => void;
    }
  | {
      /** A text of several lines. */
      kind: 'area';
      id: string;
      label: string;
      value: string;
      fault?: string | undefined;
      /** Called with every letter. */
      change: (value: string) => void;
      /** Ctrl and Enter were pressed. */
      enter: () => void;
    }
  | {
      kind: 'button';
      id: string;
      text: string;
      title: string;
      isDisabled?: boolean;
      press: () => void;
    }
  | {
      /** A sentence that a screen reader says when it changes. */
      kind: 'status';
      id: string;
      text: string;
      isFault?: boolean;
    }
  | {
      kind: 'number';
      id: string;
      label: string;
      value: number;
      least: number;
      most: number;
      /** Not rounded. */
      isFraction?: boolean;
      title?: string | undefined;
      fault?: string | undefined;
      change: (value: number) => void;
    }
  | {
      /** A number that is dragged, and written next to its slider. */
      kind: 'slider';
      id: string;
      label: string;
      value: number;
      least: number;
      most: number;
      /** `whole`: whole numbers, evenly; `log`: three digits, by ratios, and 0 at the left end. */
      scale: 'log' | 'whole';
      text: string;
      title?: string | undefined;
      change: (value: number) => void;
    }
  | {
      kind: 'chip';
      id: string;
      text: string;
      title: string;
      /** Colour of what it stands for. */
      color?: string | undefined;
      remove: () => void;
    }
  | {
      kind: 'toggle';
      id: string;
      text: string;
      title: string;
      pressed: boolean;
      change: (pressed: boolean) => void;
    }
  | {
      kind: 'steps';
      id: string;
      label: string;
      followLabel: string;
      /** How many steps there are, and which is shown, from 0. */
      count: number;
      index: number;
      text: string;
      following: boolean;
      canFollow: boolean;
      change: (index: number | null) => void;
    };
