/** A control of the toolbar. `id` tells it from the others and stays the same from update to update. */
export type Control =
  | { kind: 'name'; id: string; text: string; title?: string }
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
      /** Spaces are part of the text; otherwise they are dropped. */
      spaced?: boolean;
      title?: string | undefined;
      /** What was said against the value, where something was. */
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
      /** Told of every letter. */
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
      /** A number that is dragged, and said beside its slider. */
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
