import * as React from 'react';

/** A choice among words: values, and what a person reads where that is something else. */
export function Select(
  props: Omit<React.ComponentPropsWithoutRef<'select'>, 'children' | 'onChange'> & {
    options: readonly (string | readonly [value: string, words: string])[];
    choose: (value: string) => void;
  }
): React.ReactElement {
  const { options, choose, ...rest } = props;
  return (
    <select className="jp-mod-styled" {...rest} onChange={event => choose(event.target.value)}>
      {options.map(option => {
        const [value, words] = typeof option === 'string' ? [option, option] : option;
        return (
          <option key={value} value={value}>
            {words}
          </option>
        );
      })}
    </select>
  );
}

/** A label over a line of text. */
export function TextField(
  props: Omit<React.ComponentPropsWithoutRef<'input'>, 'onChange'> & {
    label: string;
    change: (text: string) => void;
  }
): React.ReactElement {
  const { label, change, ...rest } = props;
  return (
    <label>
      {label}
      <input className="jp-mod-styled" type="text" {...rest} onChange={event => change(event.target.value)} />
    </label>
  );
}

/** A box to tick, and behind it what is chosen. */
export function Choice(
  props: Omit<React.ComponentPropsWithoutRef<'input'>, 'onChange'> & { change: (checked: boolean) => void }
): React.ReactElement {
  const { change, children, ...rest } = props;
  return (
    <label className="jp-mod-choice">
      <input type="checkbox" {...rest} onChange={event => change(event.target.checked)} />
      {children}
    </label>
  );
}
