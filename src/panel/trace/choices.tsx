import * as React from 'react';

/** Some of a few words, at least one of them. */
export function Choices<T extends string>(props: {
  label: string;
  help?: string;
  options: readonly T[];
  chosen: readonly T[];
  change: (chosen: T[]) => void;
}): React.ReactElement {
  const { label, help, options, chosen, change } = props;
  return (
    <div className="jp-MegalensField" role="group" aria-label={label} title={help}>
      <span className="jp-MegalensField-label">{label}</span>
      <span className="jp-MegalensField-choices">
        {options.map(option => (
          <label key={option}>
            <input
              type="checkbox"
              checked={chosen.includes(option)}
              onChange={event => {
                const next = options.filter(each =>
                  each === option ? event.target.checked : chosen.includes(each)
                );
                if (next.length > 0) {
                  change(next);
                }
              }}
            />
            {option}
          </label>
        ))}
      </span>
    </div>
  );
}
