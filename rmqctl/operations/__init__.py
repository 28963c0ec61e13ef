"""Operations on stores that no broker has."""
